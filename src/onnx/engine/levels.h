/* Graphs that ONNX Runtime is known to compute wrongly from some level of optimization on. */
#ifndef WEIR_ONNX_LEVELS_H
#define WEIR_ONNX_LEVELS_H

#include "onnx/file/file.h"

/* The highest level at which 1.`minor` computes the model rightly, or `level` where that is not above it. `why` gets a
 * remark when it is lower, else "". */
int onnx_level_right(const onnx_file *file, unsigned minor, int level, const char **why);

#endif
