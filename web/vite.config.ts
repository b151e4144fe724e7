import { defineConfig } from 'vite';

export default defineConfig({
  // Relative addresses, so that the page also works behind a proxy that adds a prefix.
  base: './',
  build: {
    outDir: '../src/naksha/server/web/static',
    emptyOutDir: true,
    assetsDir: 'web',
    // Data URLs would need an exception in the Content-Security-Policy.
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 2_000,
    modulePreload: { polyfill: false },
    license: { fileName: 'web/licenses.md' },
    target: 'es2023',
    rolldownOptions: {
      checks: { pluginTimings: false },
      output: {
        // MapLibre changes rarely and is most of the code.
        codeSplitting: { groups: [{ name: 'maplibre', test: /node_modules\/maplibre-gl\// }] },
      },
    },
  },
  worker: { format: 'es' },
});
