/* traffic.h: the models of a simulated pool, and the requests that come for them: read from files, or made from a seed. */
#ifndef SIM_POOL_TRAFFIC_H
#define SIM_POOL_TRAFFIC_H

#include "pool/admission.h"

#include <weir/base.h>

#include <stdio.h>

enum { TRAFFIC_MODELS = 256, TRAFFIC_DEVICES = 8 };
#define TRAFFIC_SECOND UINT64_C(1000000000)
#define TRAFFIC_DAY    (86400 * TRAFFIC_SECOND)

/* A model's specification for admission, and the behaviour of the model's double. */
typedef struct traffic_model {
    wp_spec spec;
    uint32_t popular;       /* how often generators ask for it, beside the others; from 1 */
    uint32_t fails;         /* a load fails with a chance of 1 in `fails`; 0: never */
    uint64_t request_time;  /* mean, nanoseconds */
    uint64_t request_bytes; /* mean */
    char gives_up[WP_NAME]; /* "device,evict,wait", as spec.steps has them; "" */
} traffic_model;

typedef struct traffic_models {
    traffic_model *list;
    uint32_t count;
    uint32_t devices; /* the highest device's number, and one */
} traffic_models;

/* Fourteen models of 0.5 to 40 GiB, 169 GiB together. A load takes 1.5 s and what 2.5 GiB/s take, as from a good disk; a
 * resume 50 ms and what 40 GiB/s take, as from page-locked memory over PCIe 5; a suspend the same. WEIR_ERR_SYSTEM: no memory.
 * Freed with traffic_models_free, as the others. */
weir_status traffic_models_default(traffic_models *out);
/* Reads a file of them (docs/guide/simulate.md). WEIR_ERR_INVALID names the line. */
weir_status traffic_models_read(const char *path, traffic_models *out);
/* Gives each model a variant on each of `devices` devices, except models that have a variant on another device already.
 * The models' own devices are dealt out in turn. False: a model has too many variants. */
bool traffic_models_spread(traffic_models *models, uint32_t devices);
/* Writes what traffic_models_read reads. */
void traffic_models_write(const traffic_models *models, FILE *file);
void traffic_models_free(traffic_models *models);

typedef struct traffic_request {
    uint64_t at, duration;
    uint64_t deadline; /* after `at`; WP_FOREVER: the pool's longest wait */
    uint64_t bytes;
    uint32_t model; /* in the list */
    int32_t priority;
} traffic_request;

typedef enum traffic_kind {
    TRAFFIC_ZIPF,      /* independent requests; the model of rank n is asked for 1/n as often as the first */
    TRAFFIC_BURSTS,    /* each model sleeps for long, and then has many requests in a row */
    TRAFFIC_PING_PONG, /* models that do not fit together by turns: A B A B …, then A A B A A C …, then others */
    TRAFFIC_SCAN,      /* all models in turn, again and again */
    TRAFFIC_DIURNAL,   /* more by day than by night, and other models by day than by night */
    TRAFFIC_MIX,       /* zipf, bursts, ping-pong and diurnal by turns, for some hours each, and a scan every night */
    TRAFFIC_KINDS
} traffic_kind;

typedef struct traffic_options {
    traffic_kind kind;
    uint64_t seed, length; /* nanoseconds of traffic */
    uint64_t gap;          /* mean time between two requests */
    uint64_t budget;       /* of a device: what does not fit together */
} traffic_options;

typedef struct traffic traffic;

const char *traffic_kind_name(traffic_kind kind);
traffic_kind traffic_kind_called(const char *name); /* TRAFFIC_KINDS: none */

/* Requests in the order of their times. The models must outlive it. NULL: no memory. */
traffic *traffic_generate(const traffic_options *options, const traffic_models *models);
/* Those of a file, read as they are asked for. */
weir_status traffic_open(const char *path, const traffic_models *models, traffic **out);
/* *got false: there is none left. */
weir_status traffic_next(traffic *from, traffic_request *out, bool *got);
/* How much of it has been handed out, from 0 to 1; of a file, of its bytes. */
double traffic_fraction(const traffic *from);
void traffic_close(traffic *from);
/* A line of a file of requests, with its end. */
void traffic_request_write(const traffic_request *q, const traffic_models *models, FILE *file);

#endif
