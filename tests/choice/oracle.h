/* What should be chosen, by an opinion that shares nothing with the library's: no rule stops another, ranks are
 * counted. */
#ifndef TESTS_CHOICE_ORACLE_H
#define TESTS_CHOICE_ORACLE_H

#include "choice/machine.h"
#include <weir/manifest.h>
#include <weir/select.h>

typedef struct expected {
    const char *engine, *provider, *device;
    weir_verdict verdict;
    size_t rank; /* of the accepted ones */
} expected;

enum { MOST_EXPECTED = 3 * KINDS_OF_PROVIDERS * (MOST_DEVICES + 1) };

/* Answers how many candidates there should be; `file_bytes` of the model, `format` of its file: "onnx", "gguf",
 * "both"; of its folder: "genai". */
size_t oracle(const weir_manifest *manifest, const weir_choice_options *options, const char *format,
              uint64_t file_bytes, expected *out);

#endif
