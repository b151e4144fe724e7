/** Values that are loaded from the hub: while they are loading, loaded, or failed. */

import { useEffect, useState } from 'preact/hooks';
import { isAbort } from '../api/client';
import { Store } from './store';

export type Loadable<T> =
  | { readonly state: 'none' }
  | { readonly state: 'loading'; readonly value?: T }
  | { readonly state: 'ready'; readonly value: T }
  | { readonly state: 'failed'; readonly error: unknown };

/** A store whose value is loaded again on request; an older load never replaces a newer one. */
export class LoadedStore<T> extends Store<Loadable<T>> {
  #controller: AbortController | null = null;

  constructor() {
    super({ state: 'none' });
  }

  /** The value, if it has been loaded, or is being loaded again. */
  get current(): T | undefined {
    return 'value' in this.value ? this.value.value : undefined;
  }

  /** Load the value; `keeps` shows the one of before until then. */
  async load(loader: (signal: AbortSignal) => Promise<T>, { keeps = false } = {}): Promise<void> {
    this.#controller?.abort();
    const controller = new AbortController();
    this.#controller = controller;
    const before = this.current;
    this.set(keeps && before !== undefined ? { state: 'loading', value: before } : { state: 'loading' });
    try {
      const value = await loader(controller.signal);
      if (!controller.signal.aborted) this.set({ state: 'ready', value });
    } catch (error) {
      if (!controller.signal.aborted && !isAbort(error)) this.set({ state: 'failed', error });
    }
  }

  clear(): void {
    this.#controller?.abort();
    this.set({ state: 'none' });
  }
}

/** Hook: load a value whenever a dependency changes; returns it, and the function to load it again. */
export function useLoaded<T>(
  loader: ((signal: AbortSignal) => Promise<T>) | null,
  dependencies: readonly unknown[],
): [Loadable<T>, () => void] {
  const [store] = useState(() => new LoadedStore<T>());
  const [value, setValue] = useState<Loadable<T>>(store.value);
  const [round, setRound] = useState(0);
  useEffect(() => store.subscribe((next) => setValue(() => next)), [store]);
  useEffect(() => {
    if (loader) void store.load(loader);
    else store.clear();
    return () => store.clear();
  }, [...dependencies, round]);
  return [value, () => setRound((n) => n + 1)];
}
