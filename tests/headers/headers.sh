#!/bin/sh
# headers.sh INCLUDE: compiles each header of INCLUDE/weir by itself, twice included, with every warning an error. Old names say
# what is there now.
set -eu
include=$1
strict="-Wall -Wextra -Wpedantic -Wshadow -Wstrict-aliasing -Werror -fsyntax-only"
old="weir/workspace.h weir/experimental/kv.h weir/prefix_cache.h"
compiled=0
check() {
    compiler=$1
    shift
    command -v "$compiler" >/dev/null 2>&1 || return 0
    for header in "$include"/weir/*.h "$include"/weir/*/*.h; do
        name=${header#"$include"/}
        case " $old " in *" $name "*) continue ;; esac
        printf '#include <%s>\n#include <%s>\n' "$name" "$name" |
            "$compiler" $strict "$@" -I "$include" - || { echo "$name: $compiler $*"; exit 1; }
        compiled=$((compiled + 1))
    done
    for name in $old; do
        said=$(printf '#include <%s>\n' "$name" | "$compiler" "$@" -fsyntax-only -I "$include" - 2>&1) &&
            { echo "$name: $compiler $* takes it"; exit 1; }
        case $said in *"$name is weir/arena.h since"* | *"$name is gone: "*) ;; *) echo "$name: $said"; exit 1 ;; esac
    done
    # A name of before says which one is there now.
    said=$(printf '%s\n' '#include <weir/stats.h>' 'int main(void) { return WEIR_RUNG_RELIEVED; }' |
        "$compiler" "$@" -fsyntax-only -I "$include" - 2>&1) && { echo "WEIR_RUNG_RELIEVED: $compiler $* takes it"; exit 1; }
    case $said in *WEIR_RUNG_KEPT_RELEASED*) ;; *) echo "WEIR_RUNG_RELIEVED: $said"; exit 1 ;; esac
    # The macros, used as their comments say.
    printf '%s\n' '#include <weir/weir.h>' \
        'int main(void) { weir_client_options o = WEIR_INIT(weir_client_options); o.name = "a";' \
        'weir_stream s = WEIR_STREAM_HOST; return !(o.struct_size == sizeof o && o.maximum == 0 && s.id == 0); }' |
        "$compiler" $strict "$@" -I "$include" - || { echo "macros: $compiler $*"; exit 1; }
}
check gcc -std=c11 -x c -Wstrict-prototypes
check clang -std=c11 -x c -Wstrict-prototypes
check g++ -std=c++17 -x c++
check clang++ -std=c++17 -x c++
echo "$compiled compilations"
[ "$compiled" -gt 0 ] || exit 77
