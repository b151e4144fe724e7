/** The built-in base map: land, borders, names of countries and cities, from bundled files only. */

import type { Feature, FeatureCollection, Geometry, MultiLineString, Point, Position } from 'geojson';
import type { FontFacesSpecification, StyleSpecification } from 'maplibre-gl';
import cyrillic from '@fontsource/noto-sans/files/noto-sans-cyrillic-400-normal.woff2?url';
import greek from '@fontsource/noto-sans/files/noto-sans-greek-400-normal.woff2?url';
import latin from '@fontsource/noto-sans/files/noto-sans-latin-400-normal.woff2?url';
import latinExt from '@fontsource/noto-sans/files/noto-sans-latin-ext-400-normal.woff2?url';
import type { GeometryCollection, Topology } from 'topojson-specification';
import { feature, mesh } from 'topojson-client';
import countriesUrl from 'world-atlas/countries-50m.json?url';
import citiesUrl from '../../data/cities.json?url';
import type { Theme } from '../state/theme';
import { unwrapped } from './antimeridian';
import { PALETTES } from './palette';

/** Font of all labels; other scripts than its files have are drawn with fonts of the machine. */
export const LABEL_FONT = ['Noto Sans'];

interface World {
  readonly countries: FeatureCollection<Geometry, { name: string }>;
  readonly borders: MultiLineString;
  readonly countryNames: FeatureCollection<Point>;
  readonly cities: FeatureCollection<Point>;
}

let world: Promise<World> | null = null;

/** Return the style of the built-in base map. */
export async function baseStyle(theme: Theme): Promise<StyleSpecification> {
  world ??= loadWorld();
  const { countries, borders, countryNames, cities } = await world;
  const colors = PALETTES[theme];
  const text = { 'text-color': colors.label, 'text-halo-color': colors.labelHalo, 'text-halo-width': 1.2 };
  return {
    version: 8,
    'font-faces': fontFaces(),
    sources: {
      countries: { type: 'geojson', data: countries, attribution: 'Natural Earth' },
      borders: { type: 'geojson', data: borders },
      'country-names': { type: 'geojson', data: countryNames },
      cities: { type: 'geojson', data: cities },
    },
    layers: [
      { id: 'water', type: 'background', paint: { 'background-color': colors.water } },
      { id: 'land', type: 'fill', source: 'countries', paint: { 'fill-color': colors.land, 'fill-antialias': false } },
      { id: 'coast', type: 'line', source: 'countries', paint: { 'line-color': colors.coast, 'line-width': 0.7 } },
      {
        id: 'borders',
        type: 'line',
        source: 'borders',
        paint: { 'line-color': colors.border, 'line-width': ['interpolate', ['linear'], ['zoom'], 2, 0.8, 8, 2] },
      },
      {
        id: 'country-names',
        type: 'symbol',
        source: 'country-names',
        maxzoom: 8,
        filter: ['>=', ['get', 'size'], ['interpolate', ['linear'], ['zoom'], 1, 40, 3, 6, 5, 0.3, 6, 0]],
        layout: {
          'text-field': ['get', 'name'],
          'text-font': LABEL_FONT,
          'text-size': ['interpolate', ['linear'], ['zoom'], 2, 11, 6, 15],
          'text-letter-spacing': 0.06,
          'text-max-width': 7,
          'symbol-sort-key': ['-', ['get', 'size']],
        },
        paint: text,
      },
      {
        id: 'city-points',
        type: 'circle',
        source: 'cities',
        minzoom: 3.5,
        paint: {
          'circle-radius': 2,
          'circle-color': colors.labelHalo,
          'circle-stroke-color': colors.label,
          'circle-stroke-width': 1,
        },
      },
      {
        id: 'city-names',
        type: 'symbol',
        source: 'cities',
        minzoom: 3.5,
        layout: {
          'text-field': ['get', 'name'],
          'text-font': LABEL_FONT,
          'text-size': 11.5,
          'text-variable-anchor': ['left', 'right', 'top', 'bottom'],
          'text-radial-offset': 0.5,
        },
        paint: text,
      },
    ],
  };
}

/** Id of the first layer with labels: features are drawn below it. */
export const FIRST_LABEL_LAYER = 'country-names';

function fontFaces(): FontFacesSpecification {
  const face = (url: string, ...ranges: string[]) => ({
    url: new URL(url, document.baseURI).href,
    'unicode-range': ranges,
  });
  return {
    'Noto Sans': [
      face(latin, 'U+0-FF', 'U+2000-206F'),
      face(latinExt, 'U+100-2BA', 'U+1E00-1E9F', 'U+1EF2-1EFF'),
      face(greek, 'U+370-3FF'),
      face(cyrillic, 'U+400-45F', 'U+490-491', 'U+4B0-4B1', 'U+2116'),
    ],
  };
}

async function loadWorld(): Promise<World> {
  const [topology, cityFile] = await Promise.all([
    loadJson<Topology<{ countries: GeometryCollection<{ name: string }> }>>(countriesUrl),
    loadJson<{ cities: [string, number, number][] }>(citiesUrl),
  ]);
  const { features } = feature(topology, topology.objects.countries);
  const countries: World['countries'] = {
    type: 'FeatureCollection',
    features: features.map((country) => ({ ...country, geometry: unwrapped(country.geometry) })),
  };
  return {
    countries,
    borders: mesh(topology, topology.objects.countries, (a, b) => a !== b),
    countryNames: {
      type: 'FeatureCollection',
      features: countries.features.flatMap((country) => {
        const place = labelPlace(country.geometry);
        return place ? [namedPoint(country.properties.name, place.position, place.size)] : [];
      }),
    },
    cities: {
      type: 'FeatureCollection',
      features: cityFile.cities.map(([name, x, y]) => namedPoint(name, [x, y], 0)),
    },
  };
}

async function loadJson<T>(url: string): Promise<T> {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`The file ${url} of the page cannot be loaded: status ${response.status}`);
  return (await response.json()) as T;
}

function namedPoint(name: string, coordinates: Position, size: number): Feature<Point> {
  return { type: 'Feature', geometry: { type: 'Point', coordinates }, properties: { name, size } };
}

/** Return the centroid of the largest part of a country, and the size of the part. */
function labelPlace(geometry: Geometry): { position: Position; size: number } | null {
  const polygons =
    geometry.type === 'Polygon' ? [geometry.coordinates] : geometry.type === 'MultiPolygon' ? geometry.coordinates : [];
  let best: { position: Position; size: number } | null = null;
  for (const [ring] of polygons) {
    if (!ring) continue;
    const found = centroid(ring);
    if (found && (best === null || found.size > best.size)) best = found;
  }
  return best;
}

function centroid(ring: readonly Position[]): { position: Position; size: number } | null {
  let area = 0;
  let x = 0;
  let y = 0;
  for (let i = 0; i + 1 < ring.length; i++) {
    const [ax = 0, ay = 0] = ring[i] ?? [];
    const [bx = 0, by = 0] = ring[i + 1] ?? [];
    const cross = ax * by - bx * ay;
    area += cross;
    x += (ax + bx) * cross;
    y += (ay + by) * cross;
  }
  if (area === 0) return null;
  const position = [x / (3 * area), y / (3 * area)];
  return { position, size: Math.abs(area) * Math.cos(((position[1] ?? 0) * Math.PI) / 180) };
}
