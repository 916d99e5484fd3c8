/* The model without its weights: the same file with each large initializer, and each large constant of a node that was
 * read (onnx_graph_read_inner), replaced by a note of where its bytes lie. */
#ifndef WEIR_ONNX_STRIP_H
#define WEIR_ONNX_STRIP_H

#include "onnx/file/main_graph.h"

/* Smaller ones stay: ONNX Runtime's optimizer reads shapes and constants out of them, and they are no load. */
enum { ONNX_INLINE_BELOW = 1024 };

/* Is this one taken out and kept in weir's memory? */
bool onnx_moved(const onnx_tensor *tensor);

/* Whether the stripped model would be any different from the file. */
bool onnx_strips(const onnx_graph *graph);

/* Writes the stripped model. The notes are true: offset and length of the bytes in the model's own file, or in the file
 * beside it, as seen from file->folder, so that whatever part of ONNX Runtime follows one reads the right bytes. Small
 * tensors that lie beside are put inline. WEIR_ERR_SYSTEM without host memory. */
weir_status onnx_strip(const onnx_file *file, const onnx_graph *graph, onnx_buffer *out);

#endif
