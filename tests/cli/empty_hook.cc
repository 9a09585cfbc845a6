// A library that can be preloaded and does nothing.
