/* report.h: what the files of the verb report share: a trace, and what was made of it. */
#ifndef WEIR_CLI_REPORT_REPORT_H
#define WEIR_CLI_REPORT_REPORT_H

#include "trace/lifetimes.h"
#include "trace/recording.h"

#include <jansson.h>

typedef struct report_args {
    const char *file, *output;
    int device;      /* of a snapshot of several; -1: not given */
    uint64_t budget; /* 0: as the trace says */
    bool json;
} report_args;

typedef struct report {
    const report_args *args;
    recording trace;
    lifetimes blocks;
    samples held; /* who held what, over time */
    lends lent;
    lifetime_residency *residency; /* suspends and resumes */
    size_t residency_count;
    address_ranges ranges;
    address_map map;
} report;

/* The last part of the file's path. */
const char *report_file_name(const report *all);

/* Figures ---------------------------------------------------------------------------------------------------------- */

uint64_t report_budget(const report *all);    /* 0: not known */
const char *report_device(const report *all); /* "": not known */
double report_seconds(const report *all);     /* from the first event to the last; less than 0: not known */
uint64_t report_microseconds(const report *all, size_t event); /* since the first one */
size_t report_streams(const report *all);
uint64_t report_away_at_end(const report *all);

/* What a refusal was about, in words; the caller's to free. */
char *report_refusal_text(const report *all, size_t number);

/* A list of blocks' kinds, those that matter most first; the caller's to free. */
size_t *report_tags(const report *all, size_t most, size_t *count);

/* Blocks of one kind that were live at the end: nobody has freed them. */
typedef struct report_left {
    size_t kind;            /* in the list of kinds */
    uint64_t blocks, bytes; /* as counted, with what is away */
} report_left;

/* The kinds with such blocks, most bytes first; the caller's to free. */
report_left *report_left_live(const report *all, size_t *count);

/* Clients, the highest peaks first; the caller's to free. */
size_t *report_clients(const report *all, size_t *count);

/* Answers ---------------------------------------------------------------------------------------------------------- */

json_t *report_json(const report *all);
json_t *report_moments_json(const report *all, json_t **kinds); /* moments.c */
void report_print(const report *all);

/* Writes the page of a trace. */
weir_status report_make_page(const char *trace, const char *page);

extern const char trace_page[]; /* page.html */

#endif
