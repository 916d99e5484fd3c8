# Graphs of ONNX files, as planning sees them; with the engine's own reader of such files. Names keep to who links them.
find_path(NANOPB_INCLUDE pb_decode.h PATH_SUFFIXES nanopb)
find_library(NANOPB_LIBRARY NAMES protobuf-nanopb)
set(WEIR_GRAPH_SOURCES)
if(NANOPB_INCLUDE AND NANOPB_LIBRARY)
  set(WEIR_GRAPH_SOURCES
    attributes.c bodies.c branches.c contents.c fold.c fold_each.c fold_move.c infer.c memory.c names.c read.c rules.c rules_attention.c rules_each.c
    rules_index.c rules_make.c rules_matrix.c rules_move.c rules_norm.c rules_shape.c rules_window.c slices.c step.c
    ../engine/onnx/check.c ../engine/onnx/file.c ../engine/onnx/schema.c ../engine/onnx/tensor.c ../engine/onnx/wire.c)
  list(TRANSFORM WEIR_GRAPH_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
endif()
