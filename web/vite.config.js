// Files with fixed names, so that they can be embedded into batond by name; relative addresses, so
// that the page also works behind a proxy's prefix; nothing inline, so that the policy
// "default-src 'self'" is enough.
//
// package.json names rollup's WebAssembly build: one package for every machine, and the same lock
// file for npm 9 (Debian 12) and later.
import {defineConfig} from 'vite';

export default defineConfig({
  base: './',
  publicDir: 'public',
  build: {
    target: 'es2022',
    outDir: 'dist',
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: false,
    sourcemap: false,
    reportCompressedSize: false,
    rollupOptions: {
      output: {
        entryFileNames: 'app.js',
        assetFileNames: 'app[extname]',
        inlineDynamicImports: true,
      },
    },
  },
});
