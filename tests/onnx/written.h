/* Models that a test writes as text, in statements that end with a semicolon:
 *
 *   in x f32 n 16; weight w f32 16 17; MatMul x w > y; out y f32 n 17
 *
 * A dimension is a number, a name, or ? for one of which nothing is said; * alone is no shape, and without a type nothing is said of
 * a value but its name. `weight s i64 2 = 4 8` has those numbers; others
 * have small ones that differ from place to place. A node is KIND INPUT… > OUTPUT…, with - for an input that is left out,
 * DOMAIN:KIND for one of another domain, and attributes behind |: axis=1 is a number, perm=1, a list, direction=reverse a
 * text. */
#ifndef WEIR_TEST_ONNX_WRITTEN_H
#define WEIR_TEST_ONNX_WRITTEN_H

/* A file of the model, which is another one after the next call; in static storage. */
const char *written(const char *text);
void written_clear(void);

/* rewritten.c: tests of models that are written so; answers how many fail. */
int run_rewritten(void);

#endif
