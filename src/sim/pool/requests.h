/* requests.h: what a source of requests is made of. */
#ifndef SIM_POOL_REQUESTS_H
#define SIM_POOL_REQUESTS_H

#include "sim/pool/traffic.h"

struct traffic {
    weir_status (*next)(traffic *from, traffic_request *out, bool *got);
    double (*fraction)(const traffic *from);
    void (*close)(traffic *from);
};

#endif
