/* A driver that is the host's and adopts streams, for tests: what the world outside weir does with those is said here.
 *
 * A native stream is a `lent`, kept by the test. Its address stands for a driver's; `identity` says which of the streams
 * that had the address it is now. */
#ifndef TESTS_USES_LENDER_H
#define TESTS_USES_LENDER_H

#include "driver/driver.h"

typedef struct lent {
    uint64_t identity;
    bool elsewhere; /* of another context */
    atomic_bool captured;
} lent;

const wi_driver *lender(void);

/* Records adopted and not forgotten, of default streams too. */
extern atomic_int lender_records;

#endif
