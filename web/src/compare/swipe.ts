/** A second map above the left part of the first one, with a divider that can be moved. */

import { MapView, type MapPart } from '../map/map_view';

const STEP_PERCENT = 5;

export interface SwipeLabels {
  readonly before: string;
  readonly after: string;
}

export class Swipe {
  readonly mapView: MapView;
  readonly #element: HTMLElement;
  readonly #divider: HTMLElement;
  readonly #unfollow: () => void;
  #percent = 50;

  /** Lay a map over the main map; the main map keeps all clicks and moves. */
  constructor(main: MapView, parts: readonly MapPart[], labels: SwipeLabels) {
    this.#element = document.createElement('div');
    this.#element.className = 'swipe';
    const left = element('div', 'swipe-map');
    left.inert = true;
    this.#divider = element('div', 'swipe-divider');
    this.#divider.tabIndex = 0;
    this.#divider.setAttribute('role', 'slider');
    this.#divider.setAttribute('aria-label', 'Divider between the two versions');
    const captions = [element('span', 'swipe-label before', labels.before), element('span', 'swipe-label after', labels.after)];
    this.#element.append(left, ...captions, this.#divider);
    main.map.getContainer().parentElement?.append(this.#element);
    this.mapView = MapView.create(left, { isMain: false });
    for (const part of parts) this.mapView.add(part);
    const follow = (): void => {
      this.mapView.map.jumpTo({ center: main.map.getCenter(), zoom: main.map.getZoom() });
    };
    follow();
    main.map.on('move', follow);
    this.#unfollow = () => main.map.off('move', follow);
    this.#divider.addEventListener('pointerdown', (event) => this.#drag(event));
    this.#divider.addEventListener('keydown', (event) => this.#press(event));
    this.#moveTo(50);
  }

  destroy(): void {
    this.#unfollow();
    this.mapView.destroy();
    this.#element.remove();
  }

  #moveTo(percent: number): void {
    this.#percent = Math.min(100, Math.max(0, percent));
    this.#element.style.setProperty('--divider', `${this.#percent}%`);
    const text = String(Math.round(this.#percent));
    this.#divider.setAttribute('aria-valuenow', text);
    this.#divider.setAttribute('aria-valuetext', `${text} % of the map show the older version`);
  }

  #drag(event: PointerEvent): void {
    event.preventDefault();
    this.#divider.setPointerCapture(event.pointerId);
    const move = ({ clientX }: PointerEvent): void => {
      const { left, width } = this.#element.getBoundingClientRect();
      this.#moveTo(((clientX - left) / width) * 100);
    };
    const end = (): void => this.#divider.removeEventListener('pointermove', move);
    this.#divider.addEventListener('pointermove', move);
    this.#divider.addEventListener('pointerup', end, { once: true });
    this.#divider.addEventListener('pointercancel', end, { once: true });
  }

  #press(event: KeyboardEvent): void {
    const targets: Readonly<Record<string, number>> = {
      ArrowLeft: this.#percent - STEP_PERCENT,
      ArrowRight: this.#percent + STEP_PERCENT,
      Home: 0,
      End: 100,
    };
    const target = targets[event.key];
    if (target === undefined) return;
    event.preventDefault();
    this.#moveTo(target);
  }
}

function element(name: string, className: string, text = ''): HTMLElement {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}
