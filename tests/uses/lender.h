/* A driver that is the host's and adopts streams, for tests: what the world outside weir does with those is said here.
 *
 * A native stream is a `lent`, kept by the test. Its address stands for a driver's; `identity` says which of the streams
 * that had the address it is now: where the test changes it, the one stream ends without a word, its work goes on, and what is
 * put on the address from then on is put on the other. */
#ifndef TESTS_USES_LENDER_H
#define TESTS_USES_LENDER_H

#include "driver/driver.h"

typedef struct lent {
    uint64_t identity;
    bool elsewhere; /* of another context */
    atomic_bool captured;
} lent;

const wi_driver *lender(void);

/* Records adopted and not forgotten, of default streams too; and calls with one that was forgotten, which a driver would make on
 * another stream, or on none. */
extern atomic_int lender_records, lender_misused;

#endif
