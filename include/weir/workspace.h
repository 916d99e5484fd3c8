/* weir/workspace.h: the former name of weir/arena.h, for one release. */
#error "weir/workspace.h is weir/arena.h since 0.2: include that; the functions in it have kept their names"
