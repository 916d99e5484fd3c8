/* Stream lists: the order of streams, in which free memory is handed on without an event for each free.
 *
 * What is freed on a stream belongs to the stream's stream list and to the stream list's open epoch. Work that is queued on that stream
 * later may have it at once. An epoch is closed by one event behind all its frees; when the device is past that, its memory
 * is anyone's. Events are recorded when somebody else wants what the stream list has, and after a number of frees where there are
 * other stream lists, so that what they find has had time to pass.
 *
 * A stream may end without a word, while its work goes on. Its stream list is *gone* then: it serves nobody, and what was freed there
 * since the last event waits for a point behind all work of the device, which is had when memory is short, or given back: to
 * ask for it breaks captures that the driver does not know of. The same holds for a stream list on whose stream no event can be
 * recorded.
 *
 * Invariants: passed <= recorded < open; an extent has a stream list if and only if it is in that stream list's list and in its bins; the
 * list is in the order of epochs; a place has no stream list of a stream that has ended. All under the lock of the resource, but for
 * events, which are recorded without it. */
#ifndef WI_STREAM_LISTS_H
#define WI_STREAM_LISTS_H

#include "memory/space/extents.h"
#include "memory/resource.h"

enum { WI_EPOCHS = 8, WI_STREAM_LIST_PLACES = 1024 }; /* places: as many as a runtime has streams (streams.h) */

typedef struct wi_epoch {
    uint64_t epoch;
    wi_event event; /* behind the frees of all epochs up to that */
    uint64_t freed; /* the stream list's, when it was recorded */
} wi_epoch;

/* A stream list whose stream was settled serves the next one in the same place: its epochs go on. */
struct wi_stream_list {
    weir_stream stream; /* id 0: none */
    void *native;
    uint64_t open, recorded, passed; /* epochs */
    uint64_t frees;                  /* in the open one */
    uint64_t freed, freed_passed;    /* bytes in all, and in epochs that have passed */
    bool recording;                  /* a thread is about it */
    bool gone;                       /* the stream has ended without a word: nothing can be recorded on it any more */
    bool refused;                    /* the driver did not record when it was asked last */
    wi_stream_list *next_gone;       /* or spent */
    wi_epoch bound;                  /* while a point behind all work is recorded; epoch 0: not for this stream list */
    unsigned place;
    wi_epoch stream_uses[WI_EPOCHS];
    unsigned first_mark, mark_count;
    uint64_t bytes;          /* free here */
    wi_extent *first, *last; /* what is free here, by epoch; linked by lane_next */
    wi_size_index size_indexes[WI_SIZE_INDEXES];
};

typedef struct wi_stream_lists {
    wi_resource *resource;                         /* whose lock it is */
    uint64_t released;                             /* bytes that have become anyone's so far */
    unsigned *count;                               /* stream lists that have a stream */
    unsigned used;                                 /* places from there on never had a stream list */
    wi_stream_list *places[WI_STREAM_LIST_PLACES]; /* by the place of the stream in the runtime's table */
    uint32_t ended[WI_STREAM_LIST_PLACES];         /* generation of the last stream there that has ended */
    wi_stream_list *gone;                          /* linked by next_gone; the last one is always there: */
    wi_stream_list late;                           /* what is freed on a stream that ends meanwhile */
    wi_stream_list *spent;                         /* for the next streams */
    bool bounding;                                 /* a thread is about it */
} wi_stream_lists;

/* Tells streams of a runtime apart, now and ever; 0 is none. The rest of an id is the runtime's number. */
static inline uint64_t wi_stream_list_number(weir_stream stream)
{
    return stream.id & (UINT64_MAX >> 16);
}

void wi_stream_lists_init(wi_stream_lists *stream_lists, wi_resource *resource, unsigned *count);
void wi_stream_lists_destroy(wi_stream_lists *stream_lists); /* nothing is free in any */

/* The stream's stream list; NULL when it has none. */
wi_stream_list *wi_stream_lists_find(const wi_stream_lists *stream_lists, weir_stream stream);
/* The same, made when there is none; NULL without host memory, for a stream that has ended, and while another one has its
 * place. */
wi_stream_list *wi_stream_lists_get(wi_stream_lists *stream_lists, weir_stream stream, void *native);
/* The stream list for what is freed on a stream whatever has become of it, or, for WEIR_STREAM_HOST, behind all work of the device. */
wi_stream_list *wi_stream_lists_get_late(wi_stream_lists *stream_lists, weir_stream stream, void *native);
/* The device is past all work of the stream, whose id will not be used again: what it has is anyone's. Answers the bytes. */
uint64_t wi_stream_lists_forget(wi_stream_lists *stream_lists, weir_stream stream);
/* The stream ends here, though the device may not be past its work: what it has is anyone's when that is so. */
void wi_stream_lists_abandon(wi_stream_lists *stream_lists, weir_stream stream);
/* Has the driver record a point behind all work where stream lists wait for one; false: none does, or it cannot be had now. The lock
 * is released while the driver works. */
bool wi_stream_lists_bound(wi_stream_lists *stream_lists);
/* Waits for what was abandoned; nothing is free in any stream list then. All other streams are forgotten. */
void wi_stream_lists_drain(wi_stream_lists *stream_lists);
/* Every stream list, those that are gone, too: the one after `stream list`, NULL behind the last one; the first one after NULL. */
wi_stream_list *wi_stream_lists_next(const wi_stream_lists *stream_lists, const wi_stream_list *stream_list);

/* After so many frees in the stream list: closes the epoch where that is due. The lock is released while the driver works. */
void wi_stream_lists_freed(wi_stream_lists *stream_lists, wi_stream_list *stream_list, uint64_t bytes, uint64_t count);
/* The same of what was another's and comes back unused: closes nothing. */
void wi_stream_lists_returned(wi_stream_list *stream_list, uint64_t bytes);
/* Closes the open epochs of all stream lists and asks the driver what has passed, which becomes anyone's; answers the bytes. The lock
 * is released while the driver works. */
uint64_t wi_stream_lists_renew(wi_stream_lists *stream_lists);
/* How much of what is free has not passed, at most: while there is one stream list alone, what was anyone's may have joined it. */
uint64_t wi_stream_lists_bytes(const wi_stream_lists *stream_lists);
/* For whoever reads a trace: `other` may use the bytes from here on; the extent's own stream stands for everybody. */
void wi_stream_lists_trace(const wi_stream_lists *stream_lists, const wi_extent *extent, weir_stream other);
/* The oldest point that something waits for, in the stream list other than the stream's that has the most; false: nothing waits for
 * a known one. */
bool wi_stream_lists_oldest(const wi_stream_lists *stream_lists, weir_stream but, wi_event *out);
/* The point behind what is free in the extent; false where none was recorded yet. */
bool wi_stream_lists_point(const wi_extent *extent, wi_event *out);

#endif
