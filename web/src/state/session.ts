/** Who the caller is, and what they may do. A token is kept until the browser tab is closed. */

import { getJson, HubError, setToken, whenUnauthorized } from '../api/client';
import type { Me } from '../api/types';
import { Store } from './store';

const KEY = 'naksha.token';

export type Session =
  | { readonly state: 'starting' }
  | { readonly state: 'open'; readonly me: Me }
  | {
      readonly state: 'locked';
      /** Why a token is needed; null before one was tried. */
      readonly reason: string | null;
    }
  | { readonly state: 'failed'; readonly error: unknown };

export const session = new Store<Session>({ state: 'starting' });

/** Begin a session with the token of this browser tab, if there is one. */
export async function openSession(): Promise<void> {
  const token = sessionStorage.getItem(KEY);
  setToken(token);
  whenUnauthorized(() => {
    if (session.value.state === 'open') {
      session.set({ state: 'locked', reason: 'The token is no longer valid. Enter another one.' });
    }
  });
  await identify(token !== null);
}

/** Use a token from now on; the session stays locked if the hub refuses it. */
export async function signIn(token: string): Promise<void> {
  setToken(token);
  await identify(true);
  if (session.value.state === 'open') sessionStorage.setItem(KEY, token);
}

/** Forget the token. */
export async function signOut(): Promise<void> {
  sessionStorage.removeItem(KEY);
  setToken(null);
  await identify(false);
}

async function identify(hadToken: boolean): Promise<void> {
  try {
    session.set({ state: 'open', me: await getJson<Me>('hub/me') });
  } catch (error) {
    if (error instanceof HubError && error.status === 401) {
      sessionStorage.removeItem(KEY);
      setToken(null);
      session.set({ state: 'locked', reason: hadToken ? error.message : null });
    } else {
      session.set({ state: 'failed', error });
    }
  }
}
