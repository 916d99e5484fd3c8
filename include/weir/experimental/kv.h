/* weir/experimental/kv.h: gone since 0.2, named here for one release. */
#error "weir/experimental/kv.h is gone: docs/guide/blocks.md has the arithmetic of keys and values in blocks"
