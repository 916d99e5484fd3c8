/* weir/experimental/kv.h: gone since 0.2, named here for one release. */
#error "weir/experimental/kv.h is gone: where a token lies in a block is the engine's arithmetic; docs/guide/blocks.md has it"
