/** A value with subscribers: all shared state of the page is in stores. */

import { useEffect, useState } from 'preact/hooks';

export type Listener<T> = (value: T, before: T) => void;

export class Store<T> {
  #value: T;
  readonly #listeners = new Set<Listener<T>>();

  constructor(value: T) {
    this.#value = value;
  }

  get value(): T {
    return this.#value;
  }

  /** Replace the value and call the subscribers, unless it is the same value. */
  set(value: T): void {
    if (Object.is(value, this.#value)) return;
    const before = this.#value;
    this.#value = value;
    for (const listener of [...this.#listeners]) listener(value, before);
  }

  /** Replace some members of the value. */
  update(members: Partial<T>): void {
    const current = this.#value;
    const names = Object.keys(members) as (keyof T)[];
    if (names.some((name) => !Object.is(current[name], members[name]))) {
      this.set({ ...current, ...members });
    }
  }

  /** Call a function with every later value; returns the function that ends this. */
  subscribe(listener: Listener<T>): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

/** Hook: the value of a store; the component renders again when it changes. */
export function useStore<T>(store: Store<T>): T {
  const [value, setValue] = useState(store.value);
  useEffect(() => {
    setValue(() => store.value);
    return store.subscribe((next) => setValue(() => next));
  }, [store]);
  return value;
}
