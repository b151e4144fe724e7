/** Builds the viewer of `naksha diff --map`: one HTML file with everything in it. */

import { readFile } from 'node:fs/promises';
import { gzipSync } from 'node:zlib';
import { build, defineConfig } from 'vite';

const TARGET = 'es2023';
/** MapLibre starts its worker from a data: URL if the page is a file. */
const POLICY = [
  "default-src 'none'",
  "script-src 'unsafe-inline'",
  "style-src 'unsafe-inline'",
  'img-src data: blob:',
  'font-src data:',
  'connect-src data: blob:',
  'worker-src blob: data:',
].join('; ');

export default defineConfig({
  plugins: [embedded(), singleFile()],
  build: {
    outDir: '../src/naksha/server/web/static',
    emptyOutDir: false,
    assetsInlineLimit: () => true,
    cssCodeSplit: false,
    chunkSizeWarningLimit: 4_000,
    modulePreload: false,
    license: { fileName: 'licenses.md' },
    target: TARGET,
    rolldownOptions: {
      checks: { pluginTimings: false },
      input: 'src/viewer/main.tsx',
      output: { format: 'es', codeSplitting: false },
    },
  },
});

/** Files that the page loads by their address: here they are a part of the code. */
function embedded() {
  return {
    name: 'naksha-embedded',
    enforce: 'pre',
    async load(id) {
      const [file, kind] = id.split('?');
      if (kind === 'worker&url') return blobModule(await bundled(file), 'text/javascript');
      if (kind === 'url' && file.endsWith('.json')) return blobModule(await readFile(file, 'utf8'), 'application/json');
      return null;
    },
  };
}

function blobModule(text, type) {
  return `export default URL.createObjectURL(new Blob([${JSON.stringify(text)}], { type: '${type}' }));`;
}

async function bundled(entry) {
  const [{ output }] = await build({
    configFile: false,
    logLevel: 'warn',
    build: { write: false, target: TARGET, minify: true, lib: { entry, formats: ['es'], fileName: 'worker' } },
  });
  return output[0].code;
}

function singleFile() {
  return {
    name: 'naksha-single-file',
    enforce: 'post',
    generateBundle: {
      order: 'post',
      handler(_, bundle) {
        const found = { code: '', css: '', licenses: '' };
        for (const [name, part] of Object.entries(bundle)) {
          if (part.type === 'chunk') found.code += part.code;
          else if (name.endsWith('.css')) found.css += part.source;
          else if (name.endsWith('licenses.md')) found.licenses += part.source;
          else this.error(`the viewer would need the file ${name}`);
          delete bundle[name];
        }
        this.emitFile({ type: 'asset', fileName: 'compare.html', source: page(found) });
      },
    },
  };
}

const packed = (text) => gzipSync(text, { level: 9 }).toString('base64');

function page({ code, css, licenses }) {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="${POLICY}">
<title>Changes</title>
<style>${css}</style>
</head>
<body>
<div id="app"></div>
<script type="text/plain" id="licenses">${packed(licenses)}</script>
<script type="text/plain" id="comparison">NAKSHA_COMPARISON</script>
<script type="text/plain" id="code">${packed(code)}</script>
<script>
(async () => {
  const bytes = Uint8Array.from(atob(document.getElementById('code').textContent), (one) => one.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  const script = document.createElement('script');
  script.type = 'module';
  script.textContent = await new Response(stream).text();
  document.head.append(script);
})().catch((error) => {
  document.getElementById('app').textContent = 'This browser cannot show the map; use a newer one. ' + error;
});
</script>
</body>
</html>
`;
}
