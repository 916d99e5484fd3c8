/* recording.h: a whole trace in memory, from whatever file it is in: weir's binary trace, the CSV of RMM or of weir,
 * plain or gzip, or the snapshot of PyTorch's allocator. The events stand in their order, what has no meaning in them
 * is left out and told, and each says what was live, pending and held after it, as far as the file knows. */
#ifndef WI_TRACE_RECORDING_H
#define WI_TRACE_RECORDING_H

#include <weir/trace.h>

typedef enum recording_format { RECORDING_WEIR, RECORDING_CSV, RECORDING_PICKLE } recording_format;

/* For messages: the files that are read. */
#define RECORDING_KINDS                                                                                                \
    "a trace is weir's binary file, the CSV of RMM or of weir (also as gzip), or a snapshot of PyTorch's allocator"

/* What could not be used. */
typedef struct recording_problem {
    uint64_t line; /* of a CSV; else the number of the event */
    const char *what;
} recording_problem;

enum { RECORDING_PROBLEMS = 16, RECORDING_NO_DEVICE = -1 };

/* A text that events name; it lives as long as the recording. */
typedef struct recording_text {
    uint64_t hash;
    char *bytes;
} recording_text;

/* What the driver gave, by address; only a snapshot of PyTorch tells. */
typedef struct recording_segment {
    uint64_t address, bytes;
    uint64_t stream;
} recording_segment;

typedef struct recording {
    recording_format format;
    weir_event *events;
    size_t count, room;
    recording_text *texts; /* open addressing, at most half full */
    size_t text_count, text_room;
    recording_segment *segments; /* at the end of the trace */
    size_t segment_count;
    uint64_t problem_count;
    recording_problem problems[RECORDING_PROBLEMS]; /* the first ones */
    uint64_t empty;                                 /* rows and events of no bytes at no address; they are left out */
    uint64_t unknown;                               /* entries of a snapshot whose action has no meaning here */
    uint64_t lost;                                  /* events that are known to be missing */
    uint64_t budget;                                /* 0: not known */
    bool cut;                                       /* the file is cut off */
    bool timed;                                     /* the events have times */
    bool holds;                                     /* the events tell what was held */
    bool orders_host;                               /* stream 0 is WEIR_STREAM_HOST */
} recording;

/* Reads a file, and tells its format from the content. `device` is the ordinal in a snapshot of several devices, or
 * RECORDING_NO_DEVICE. WEIR_ERR_SYSTEM, WEIR_ERR_CORRUPT, WEIR_ERR_UNSUPPORTED; *out is empty then. A file without an
 * event is none of these; a CSV of which no line can be used is WEIR_ERR_CORRUPT. */
weir_status recording_load(const char *path, int device, recording *out);
void recording_clear(recording *all);

/* For readers ------------------------------------------------------------------------------------------------------ */

/* The text as the recording keeps it; NULL: no memory. */
const char *recording_intern(recording *all, const char *text, size_t bytes);
weir_status recording_add(recording *all, const weir_event *event);
void recording_problem_add(recording *all, uint64_t line, const char *what);

/* By its first bytes; *kind is RECORDING_FILE_TEXT where it is nothing else. */
typedef enum recording_file { RECORDING_FILE_TEXT, RECORDING_FILE_BINARY, RECORDING_FILE_PICKLE } recording_file;
weir_status recording_file_look(const char *path, recording_file *kind);

/* read_snapshot.c */
bool recording_is_pickle(const unsigned char *first, size_t bytes);
weir_status recording_load_snapshot(const char *path, int device, recording *out);

/* Snapshots of PyTorch --------------------------------------------------------------------------------------------- */

/* The snapshot of PyTorch's allocator: a dictionary with the segments as they are at the end, and the
 * entries of a ring for each device. weir says who a block is for in its frames, where PyTorch has the stack. */

/* The file names of those frames. */
#define SNAPSHOT_TAG    "weir/tag"
#define SNAPSHOT_CLASS  "weir/class"
#define SNAPSHOT_CLIENT "weir/client"

enum { SNAPSHOT_TEXT_MOST = 512, SNAPSHOT_FRAMES = 64 };

#endif
