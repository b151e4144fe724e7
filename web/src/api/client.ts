/** Requests to the hub: address, token, JSON, and errors in words. */

/** Address of the hub; the page is served at its root, which a proxy may have moved. */
export const HUB: URL = new URL('.', document.baseURI);

/** Value of a query parameter; arrays repeat the parameter, absent values are left out. */
export type QueryValue = string | number | boolean | null | undefined | readonly string[];
export type Query = Readonly<Record<string, QueryValue>>;

/** An error that the hub returned, or the reason why no response arrived. */
export class HubError extends Error {
  constructor(
    message: string,
    /** HTTP status; 0 if no response arrived. */
    readonly status: number,
    readonly code: string,
    readonly details: Readonly<Record<string, unknown>> = {},
  ) {
    super(message);
    this.name = 'HubError';
  }
}

let token: string | null = null;
let onUnauthorized: () => void = () => undefined;

/** Set the token of all further requests. */
export function setToken(value: string | null): void {
  token = value;
}

/** Call a function whenever the hub refuses a token, or misses one. */
export function whenUnauthorized(call: () => void): void {
  onUnauthorized = call;
}

/** Return the headers that authenticate a request to the hub. */
export function authHeaders(): Record<string, string> {
  return token === null ? {} : { Authorization: `Bearer ${token}` };
}

/** Return the address of a path of the hub, such as `hub/spaces`; `raw` is an encoded query. */
export function hubUrl(path: string, query: Query = {}, raw = ''): string {
  const search = [queryString(query), raw].filter((part) => part !== '').join('&');
  return new URL(path, HUB).href + (search && `?${search}`);
}

/** Encode a query. */
export function queryString(query: Query): string {
  const parts: string[] = [];
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === '') continue;
    for (const one of Array.isArray(value) ? value : [value]) {
      parts.push(`${encodeURIComponent(name)}=${encodeURIComponent(String(one))}`);
    }
  }
  return parts.join('&');
}

export interface RequestOptions {
  readonly method?: string;
  readonly query?: Query;
  /** A part of the query that is encoded already, such as a filter. */
  readonly rawQuery?: string;
  /** Body, sent as JSON. */
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal | undefined;
}

/** Send a request and return its successful response, or throw a HubError. */
export async function request(path: string, options: RequestOptions = {}): Promise<Response> {
  return requestUrl(hubUrl(path, options.query, options.rawQuery), options);
}

/** The same for a complete address of the hub. */
export async function requestUrl(url: string, options: RequestOptions = {}): Promise<Response> {
  const headers: Record<string, string> = { ...authHeaders(), ...options.headers };
  const init: RequestInit = { method: options.method ?? 'GET', headers, credentials: 'omit' };
  if (options.body !== undefined) {
    headers['Content-Type'] ??= 'application/json';
    init.body = JSON.stringify(options.body);
  }
  if (options.signal) init.signal = options.signal;
  let response: Response;
  try {
    response = await fetch(url, init);
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new HubError(
      'The hub does not respond. Check that it is running and that this machine can reach it, then try again.',
      0,
      'unreachable',
    );
  }
  if (response.ok) return response;
  const failure = await errorOf(response);
  if (failure.status === 401) onUnauthorized();
  throw failure;
}

/** Send a request and return the JSON of its response. */
export async function getJson<T>(path: string, options: RequestOptions = {}): Promise<T> {
  const response = await request(path, options);
  return (await response.json()) as T;
}

/** Return whether an error only says that the page itself cancelled the request. */
export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === 'AbortError';
}

/** Return an error as a sentence for people. */
export function errorText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

async function errorOf(response: Response): Promise<HubError> {
  let body: Record<string, unknown> = {};
  try {
    body = (await response.json()) as Record<string, unknown>;
  } catch {
    // Not an error of the hub, such as one of a proxy: its status must do.
  }
  const message =
    typeof body['message'] === 'string'
      ? body['message']
      : `The hub returned the status ${response.status}. Try again; if it persists, look into the log of the hub.`;
  const code = typeof body['code'] === 'string' ? body['code'] : 'error';
  return new HubError(message, response.status, code, body);
}
