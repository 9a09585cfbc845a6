// Files with fixed names, so that they can be embedded into batond by name; relative addresses, so
// that the page also works behind a proxy's prefix; nothing inline, so that the policy
// "default-src 'self'" is enough.
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
