/** Icons, drawn as lines in the colour of their text. */

const PATHS = {
  layers: 'M12 3 3 8l9 5 9-5-9-5ZM3 12.5l9 5 9-5M3 17l9 5 9-5',
  clock: 'M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18ZM12 7v5l3.5 2',
  compare: 'M12 3v18M4 7h5v10H4zM15 7h5v10h-5z',
  log: 'M4 6h16M4 12h16M4 18h10',
  edit: 'M4 20l1-4L16 5l3 3L8 19l-4 1ZM14 7l3 3',
  merge: 'M7 4v6c0 4 5 4 5 8v2M17 4v6c0 4-5 4-5 8M4.5 6.500 7 4l2.500 2.500M14.500 6.500 17 4l2.500 2.500',
  live: 'M12 12h.01M8.500 15.500a5 5 0 0 1 0-7M15.500 8.500a5 5 0 0 1 0 7M5.600 18.400a9 9 0 0 1 0-12.800M18.400 5.600a9 9 0 0 1 0 12.800',
  search: 'M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14ZM16 16l5 5',
  close: 'M6 6l12 12M18 6 6 18',
  back: 'M14 5l-7 7 7 7',
  play: 'M8 5v14l11-7-11-7Z',
  pause: 'M8 5v14M16 5v14',
  previous: 'M17 6l-8 6 8 6V6ZM7 6v12',
  next: 'M7 6l8 6-8 6V6ZM17 6v12',
  tag: 'M4 4h8l8 8-8 8-8-8V4ZM8 8h.01',
  sun: 'M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8ZM12 2v3M12 19v3M2 12h3M19 12h3M5 5l2 2M17 17l2 2M5 19l2-2M17 7l2-2',
  moon: 'M20 14A8 8 0 0 1 10 4a8 8 0 1 0 10 10Z',
  system: 'M4 5h16v11H4zM9 20h6M12 16v4',
  key: 'M8 11a4 4 0 1 0 0 8 4 4 0 0 0 0-8ZM11 12l8-8M16 7l3 3',
  target: 'M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16ZM12 2v5M12 17v5M2 12h5M17 12h5',
  reload: 'M20 12a8 8 0 1 1-2.500-5.800M20 4v4h-4',
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
