/* weir/prefix_cache.h: gone since 0.2, named here for one release. */
#error "weir/prefix_cache.h is gone: a block has one holder, and weir_copy moves it (docs/guide/blocks.md)"
