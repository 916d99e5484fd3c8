/* common.h: what the tests of predictions share: a store of their own, and calls that have to work. */
#ifndef PREDICT_COMMON_H
#define PREDICT_COMMON_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <weir/predict.h>
#include <weir/weir.h>

#include "ok.h"

/* A new folder that is the store, in which predictions are kept. */
static inline void store_open(char folder[64])
{
    snprintf(folder, 64, "/tmp/weir-predict-XXXXXX");
    assert_non_null(mkdtemp(folder));
    OK(weir_option_set("home", folder));
    OK(weir_option_set("predictions", "1"));
}

static inline void store_close(const char *folder)
{
    static const char *const names[] = {"predictions",
                                        "predictions.lock",
                                        "model.toy",
                                        "copy.toy",
                                        "model.gguf",
                                        "deeper/store/predictions",
                                        "deeper/store/predictions.lock",
                                        "deeper/store",
                                        "deeper"};
    char path[160];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        (void)remove(path);
    }
    assert_int_equal(rmdir(folder), 0); /* nothing else was left */
    OK(weir_option_set("home", NULL));
    OK(weir_option_set("predictions", NULL));
}

#endif
