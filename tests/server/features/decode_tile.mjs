// Decode a vector tile from standard input with @mapbox/vector-tile; print its features as GeoJSON.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const require = createRequire(pathToFileURL(`${process.cwd()}/package.json`));
const { VectorTile } = await import(pathToFileURL(require.resolve('@mapbox/vector-tile')));
const pbf = await import(pathToFileURL(require.resolve('pbf')));
const Pbf = pbf.default ?? pbf.PbfReader;

const [zoom, x, y] = process.argv.slice(2).map(Number);
const tile = new VectorTile(new Pbf(readFileSync(0)));
const features = Object.values(tile.layers).flatMap((layer) =>
  Array.from({ length: layer.length }, (_, n) => layer.feature(n).toGeoJSON(x, y, zoom)),
);
console.log(JSON.stringify(features));
