/* weir/model.h: a model loaded by an engine, with an account of its own.
 *
 * A model is loaded, asked any number of times from any threads, and unloaded:
 *
 *     weir_model *model;
 *     weir_tensor text = {.struct_size = sizeof text, .name = "text", .type = WEIR_TYPE_TEXT, .rank = 1};
 *     weir_inference inference = WEIR_INIT(weir_inference);
 *     weir_outputs outputs = WEIR_INIT(weir_outputs);
 *     text.data = "a sentence";
 *     text.bytes = 10;
 *     text.shape[0] = 10;
 *     inference.inputs = &text;
 *     inference.input_count = 1;
 *     if (weir_model_create("minilm.gguf", NULL, &model) != WEIR_OK)
 *         return complain();
 *     if (weir_model_infer(model, &inference, &outputs) == WEIR_OK) {
 *         use(outputs.tensors, outputs.count);
 *         weir_model_release_outputs(model, &outputs);
 *     }
 *     return weir_model_destroy(model);
 *
 * Names, types and shapes of a model's inputs are in weir_model_info. Several models in one runtime share its budget:
 * examples/two-models.c is a whole program. Further down: a model that steps aside, and one that is chosen and moves. */
#ifndef WEIR_MODEL_H
#define WEIR_MODEL_H

#include <weir/engine.h>
#include <weir/residency.h>
#include <weir/select.h>

WEIR_BEGIN

typedef struct weir_model weir_model;

/* How much of a model has to have room on its device. */
typedef enum weir_model_room {
    WEIR_ROOM_WHOLE = 0, /* all of it, or the load is refused */
    /* Weights that find no room, or would not leave what the model is predicted to take besides, begin in memory of the
     * host's, shown at their addresses (weir_client_set_overflow in weir/residency.h). Runs read them there, over the link,
     * and a thread of weir's brings them between runs as room appears, as after weir_model_resume_behind. It is the same as
     * WEIR_ROOM_WHOLE where the device shows no memory of the host's, on the host itself, and with an engine that cannot
     * suspend. */
    WEIR_ROOM_AUTO = 1,
    WEIR_ROOM_COUNT = 2
} weir_model_room;

typedef struct weir_model_options {
    size_t struct_size;
    const char *name;             /* of the client; NULL: the file's name */
    const char *engine;           /* NULL: by the file's suffix, else by its first bytes */
    const char *device;           /* NULL: "host" */
    weir_runtime *runtime;        /* use this one instead of weir_runtime_get(device) */
    uint64_t guaranteed, maximum; /* of the client; weir/client.h */
    const weir_setting *settings;
    size_t setting_count;
    void (*progress)(double fraction, void *user);
    void *progress_user;
    /* Asked by the engine while it loads, on any thread, with progress_user: true ends the load with WEIR_ERR_CANCELLED, as
     * soon as the engine can; an engine that cannot loads to the end. NULL: never. */
    bool (*stops)(void *user);
    /* Its account, which was opened before, so that limits of several models bind before the first is loaded. It is on the
     * model's device and has the name and the limits; `name`, `device`, `runtime`, `guaranteed` and `maximum` are not
     * looked at. It stays the caller's, and is closed after the model: WEIR_ERR_BUSY then is what an engine has kept.
     * NULL: the model opens one. */
    weir_client *client;
    /* Once it is loaded, page-locked memory for its first suspend is made in the background (weir_client_prepare in
     * weir/residency.h), for all of its client but scratch and activations. What is in the way of that is logged. */
    bool prepare;
    weir_model_room residency;
} weir_model_options;

/* Loads the model at `path`. A name without a slash that is no file or folder here may be that of a model in the store
 * (the option `home`, folder models/); so it is in weir_predict, weir_pool_add and weir_manifest_read. `options` may be
 * NULL. On failure nothing is left of it. Errors: WEIR_ERR_NOT_FOUND (file, engine, device), WEIR_ERR_CORRUPT,
 * WEIR_ERR_UNSUPPORTED, WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_ENGINE, WEIR_ERR_INVALID. Any thread; loads of several models
 * may run at once. */
WEIR_API WEIR_NODISCARD weir_status weir_model_create(const char *path, const weir_model_options *options,
                                                      weir_model **out);

/* Unloads the model and closes its client, unless the client is the caller's. Waits for other calls that have begun, as
 * a cancel or a look at the metrics.
 * Errors: WEIR_ERR_BUSY while a run or a warm-up is under way, outputs are not released or prepared calls of the model
 * exist: nothing has changed. WEIR_ERR_ENGINE: the model is gone, but its engine, or an engine that it has moved from,
 * has kept memory, which stays charged and is named. */
WEIR_API WEIR_NODISCARD weir_status weir_model_destroy(weir_model *model);

/* As the functions of the same names in weir_engine; infer is infer_stream where the inference has a `piece`. An
 * optional function that the engine lacks: WEIR_ERR_UNSUPPORTED. Outputs are to be released before the model is
 * unloaded.
 *
 * Whose fault a failure is, the same model decides by good input: a copy of the smallest request that it has answered, in
 * host memory and up to 1 MiB with its settings; for an engine that hands out pieces, and before the first answer, its
 * warm-up. A run that fails with WEIR_ERR_ENGINE, WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_UNSUPPORTED or WEIR_ERR_DRIVER is
 * followed by one such run at most, which several that fail at once share, and which is left out more and more often while
 * it fails. If that works, the request is at fault: nothing comes of it for others, and WEIR_ERR_ENGINE is
 * WEIR_ERR_INVALID. If it fails with WEIR_ERR_ENGINE or WEIR_ERR_DRIVER, weir_model_health says so until a run is
 * answered. Where nothing is known to be good, the failure stays as it is. Metrics count such runs. */
WEIR_API WEIR_NODISCARD weir_status weir_model_infer(weir_model *model, const weir_inference *inference,
                                                     weir_outputs *out);
WEIR_API void weir_model_release_outputs(weir_model *model, weir_outputs *outputs);
/* Stops the runs of that id (0: every run, warm-ups too) wherever they are: in the engine, about to be made, or
 * between two candidates of a weir_model_create_chosen. WEIR_OK: there was one, and each of them answers
 * WEIR_ERR_CANCELLED, at the latest when the engine would have answered. WEIR_ERR_NOT_FOUND: no such run has begun,
 * or all have ended. */
WEIR_API WEIR_NODISCARD weir_status weir_model_cancel(weir_model *model, uint64_t id);
/* A run without inputs and outputs: of a model that weir_model_create_chosen made it falls back as a first run does. */
WEIR_API WEIR_NODISCARD weir_status weir_model_warm_up(weir_model *model);
WEIR_API WEIR_NODISCARD weir_status weir_model_health(weir_model *model);
WEIR_API WEIR_NODISCARD weir_status weir_model_metrics(weir_model *model, weir_engine_metrics *out);
WEIR_API WEIR_NODISCARD weir_status weir_model_info(weir_model *model, weir_model_details *out);

/* The model's account; valid until the model is unloaded, or, of one that weir_model_create_chosen made, until it
 * moves: NULL while that is on no device. */
WEIR_API weir_client *weir_model_client(const weir_model *model);

/* ------------------------------------------------------------------------------------------------------------------ */

/* A prepared call: one request that is made again and again. Its inputs lie where the caller writes them, and its results
 * come to lie where they were before:
 *
 *     weir_model_call *call;
 *     weir_model_call_results results = WEIR_INIT(weir_model_call_results);
 *     if (weir_model_call_create(model, &inference, NULL, &call) != WEIR_OK)
 *         return complain();
 *     while (next_input(text.data) && weir_model_call_run(call, &results) == WEIR_OK)
 *         use(results.tensors, results.count);
 *     return weir_model_call_destroy(call);
 */

typedef struct weir_model_call weir_model_call;

typedef struct weir_model_call_options {
    size_t struct_size;
    /* Gives memory for the result number `index`, when a run has made it for the first time, or larger than what was given
     * before; on the running thread, and it must not call this model. It stays the caller's, and is written to until the
     * call is destroyed or has got other memory for that result. NULL: there is none, and the run fails with
     * WEIR_ERR_SYSTEM. Without the function the call has memory of its own, aligned to 64 bytes. */
    void *(*room)(size_t index, size_t bytes, void *user);
    void *user;
} weir_model_call_options;

typedef struct weir_model_call_results {
    size_t struct_size;
    const weir_tensor *tensors; /* the call's, until its next run or its end */
    size_t count;
    /* Counts up when a run's results have other names, types, shapes or addresses than those of the run before: whoever
     * has looked at the tensors once need not again while it stays the same. The first run's is 1. */
    uint64_t layout;
} weir_model_call_results;

/* Prepares it. The inference is copied with its settings and with the names and shapes of its inputs; their data stay the
 * caller's and are read by each run. Nothing runs yet, and what is wrong with the inputs is told by the first run. The
 * model stays for as long as the call is there. `options` may be NULL. Errors: WEIR_ERR_INVALID (NULL, structures, a
 * `piece` is set), WEIR_ERR_SYSTEM. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_model_call_create(weir_model *model, const weir_inference *inference,
                                                           const weir_model_call_options *options,
                                                           weir_model_call **out);

/* Makes the call, as weir_model_infer does: with the same errors, reached by the same cancel, and moved as any other run.
 * Results in the host's memory are copied to the call's, which no client is charged for; the engine has its own back at
 * return, so that the model can be suspended. A result stays where it is until it grows beyond that memory; it gets twice
 * as much then, and where it lay before stays readable until the call is destroyed. Results on a device are the engine's,
 * counted as results that are not released, and end when the next run begins. Where a run fails, *out and the results in
 * the host's memory are as they were. One thread at a time: WEIR_ERR_BUSY for a second one. Several calls of
 * one model run at once as several runs do. */
WEIR_API WEIR_NODISCARD weir_status weir_model_call_run(weir_model_call *call, weir_model_call_results *out);

/* Ends the call, with its results. WEIR_ERR_BUSY while the call runs. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_model_call_destroy(weir_model_call *call);

/* ------------------------------------------------------------------------------------------------------------------ */

/* A model steps aside: what weir/residency.h does for a client, done for the client of a model between two of its runs. */

typedef struct weir_model_suspend_options {
    size_t struct_size;
    bool refuse_runs; /* a run of it is refused with WEIR_ERR_BUSY until it is resumed; else the run resumes it first */
    bool at_once;     /* with runs under way it is refused with WEIR_ERR_BUSY; else they are waited for */
    /* Nanoseconds for those runs to end and for results to be released, and again for the device's work. 0: as long as
     * it takes, but for results, as whoever has them may be waiting for a run. */
    uint64_t wait;
    /* As in weir_suspend_options; what the engine says of its classes is added to the sums. */
    uint32_t stay, drop, unwritten;
    bool verify, keep_guarantee;
    const char *folder;
    /* As in weir_suspend_options: where the device can, runs are answered from the copies, over the link, before the
     * model is back; see weir_model_resume_behind. Elsewhere `show` does nothing. */
    bool show;
    uint64_t step; /* with `show`: bytes that come back at a time, for which a run may have to wait; 0: 64 MiB */
} weir_model_suspend_options;

/* Suspends it: runs that begin from here on wait at its gate, those under way are waited for or refused, the engine
 * says what need not be kept (weir_engine.suspend), and the client is suspended; all of that or nothing. `options` may
 * be NULL, and so may `out`, the client's receipt. Then weir_model_destroy works as before, and so do info, health,
 * metrics and cancel. WEIR_ERR_BUSY: it is suspended already, or runs or results that are not released stand in the
 * way; inside a pressure callback, and on a thread that is in a run of the model, neither is waited for. A shown model
 * that is coming back comes back whole first, for which there must be room; inside a pressure callback the suspend is
 * refused instead, and the model comes back no further until its next run or resume.
 * WEIR_ERR_UNSUPPORTED: its engine cannot, or not with this model, or its runtime's resource cannot.
 * WEIR_ERR_DEVICE_LOST: it is on no device. Others as weir_client_suspend. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_model_suspend(weir_model *model, const weir_model_suspend_options *options,
                                                       weir_residency *out);

/* Resumes the model; WEIR_OK for a model that is not suspended. At return the contents are there, or with a stream
 * other than WEIR_STREAM_HOST on their way: work on the stream comes behind them, and the next run waits for them. A
 * failure, as of weir_client_resume, leaves the model suspended. Runs wait meanwhile. A shown model that is
 * coming back waits for runs under way; WEIR_ERR_BUSY where runs or results stand in the way of weir_model_suspend. Any
 * thread. */
WEIR_API WEIR_NODISCARD weir_status weir_model_resume(weir_model *model, weir_stream stream);

/* Two models of one runtime change places, for a budget that does not hold both: suspends `leaves` as
 * weir_model_suspend with `options` (NULL: as it begins; `show` is not for this call), and resumes `comes`, which is
 * suspended, as weir_model_resume with `stream`. Memory passes piece by piece, and both directions of the link are busy
 * (weir/exchange.h). *out, which may be NULL, is the receipt of `leaves`. Runs of both wait meanwhile.
 *
 * All or nothing: on failure `comes` is suspended, and `leaves` is as it was, but for contents that were to be dropped,
 * which may be zeros. Two exceptions, which weir_model_residency tells: where weir_client_exchange cannot bring it back,
 * `leaves` is suspended, too, with nothing lost, and its next run or resume brings it back; and where the engine of
 * `comes` fails (weir_engine.resume), the places are changed.
 *
 * Errors: those of weir_model_suspend for `leaves` and of weir_model_resume for `comes`; WEIR_ERR_BUSY also if `comes`
 * is not suspended, is on its way on another thread, or is used while it comes back; WEIR_ERR_INVALID also for a model
 * twice, models of two runtimes, and `options->show`. Who only wants the room then suspends `leaves` and resumes `comes`
 * in two calls. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_model_exchange(weir_model *leaves, const weir_model_suspend_options *options,
                                                        weir_model *comes, weir_stream stream, weir_residency *out);

/* Begins to bring a model back that was suspended with `show`, and returns; runs are answered meanwhile. A run of such a
 * model begins the same. First the classes that runs write come back: all but those that the engine or the caller has
 * called unwritten. That takes room. The rest is read where it is shown. A thread of weir's brings that rest
 * in the order of loading, `step` by step, and never while a run is under way or results are not released. So a run that
 * has begun the return is answered before the first step. A later run first lets steps come for as long as the run before
 * took, at least one step; where runs overlap all the time, new runs wait for a step after eight answers.
 *
 * A step that finds no room or fails changes nothing: the model stays shown and answers on, and
 * weir_model_presence.stopped tells. A later run, or this call, has the steps go on. Addresses stay the same, so that
 * captured graphs stay right. A suspended model that is not shown, or has memory that cannot be, is resumed as by
 * weir_model_resume with WEIR_STREAM_HOST; so is a model for which the system has no thread. WEIR_OK if the model is not
 * suspended. Errors as weir_model_resume. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_model_resume_behind(weir_model *model);

typedef struct weir_model_presence {
    size_t struct_size;
    weir_residency_state state;
    uint64_t away;              /* bytes that are elsewhere now */
    uint64_t suspends, resumes; /* that were done; of the resumes, by runs: */
    uint64_t resumes_by_runs;
    uint64_t returned; /* bytes that the last resume brought back */
    /* Of the last that was done: when, by CLOCK_MONOTONIC in nanoseconds (0: never), and the milliseconds that it took
     * without the wait for runs. */
    uint64_t suspended_at, resumed_at;
    double suspend_ms, resume_ms;
    uint64_t shown;      /* of `away`: bytes that runs can use, shown at the addresses of the model */
    bool coming;         /* the model is shown, and comes back between its runs */
    weir_status stopped; /* why the model comes back no further at present; WEIR_OK: nothing has stopped the return */
} weir_model_presence;

/* Whether the model is here, and what was done by the calls above and by runs; not what the program has done with the
 * client itself. Errors: WEIR_ERR_INVALID, WEIR_ERR_FORKED. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_model_residency(weir_model *model, weir_model_presence *out);

/* ------------------------------------------------------------------------------------------------------------------ */

/* A model that was chosen for, and that moves on to the next candidate when one fails.
 *
 * weir_model_create loads a model exactly as its options say. weir_model_create_chosen asks weir/select.h and tries the
 * accepted candidates by rank. The functions above serve a chosen model like any other. This is how it moves:
 *
 * | row | the model is | a request | what is done | its caller sees |
 * |---|---|---|---|---|
 * | 1 | on a candidate | fails, and is at fault | nothing | that failure |
 * | 2 | on a candidate | fails otherwise | the others try it, by rank; one that answers gets the model | the answer |
 * | 3 | on a candidate | is answered by none of them | nothing | its failure, and each candidate's |
 * | 4 | on a candidate | fails, as good input does, again | as in 2; last its own, loaded again | as in 2 or 3 |
 * | 5 | on a candidate | is tried where both have no room | the one before goes, if it is idle; then 7 | as in 7 |
 * | 6 | on a candidate | loses the device | the instance is given up; then 7 | as in 7 |
 * | 7 | on no device | begins, or goes on | the others load it, by rank; last the one before | as in 1 to 6 |
 * | 8 | on no device | finds none that loads it | nothing; the next looks again | its failure, and each candidate's |
 * | 9 | being moved | begins, or fails | it waits, and is made where the model is then | as in 1 to 8 |
 *
 * | a candidate that | is used again |
 * |---|---|
 * | could not be loaded, but for lack of memory, or is on a lost device | never |
 * | could not answer a request, or not be loaded for it | in row 7; for requests that fail with another status |
 *
 * Row 1: any status but WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_UNSUPPORTED (other than of a call that the engine lacks),
 * WEIR_ERR_DRIVER, WEIR_ERR_ENGINE and WEIR_ERR_DEVICE_LOST; these, too, where the candidate answers good input, as above;
 * and any failure after a piece of the answer was handed out. Row 2: a candidate is loaded for the request beside the
 * present one. Row 4: WEIR_ERR_ENGINE, and good input has failed as well, or `health` does, at the second failure, the
 * fourth, the eighth and every sixteenth with no answer between them. Row 5: idle is what no other run and no output uses.
 * Row 7: the request is made there. Rows 6 and 8: the failure is WEIR_ERR_DEVICE_LOST where there is no other.
 *
 * A request is answered or has failed once, and a cancel reaches it in every row. A request with inputs on a device
 * (weir_tensor.on_device) is made on that device alone; a request with inputs ordered on a stream waits for the stream
 * before it is made on another device. A warm-up is a request without an answer. Requests under way on the candidate
 * before end there, and their outputs stay until they are released. A suspended model that cannot be resumed for a
 * request is row 6 if its device is lost; any other failure is the request's, as in row 1. No lock of weir's is held
 * while an engine loads or runs.
 *
 * After a move weir_model_client and weir_model_info tell of the present candidate. What the latter told before stays
 * readable until the model is unloaded; the client from before is closed, and its record may
 * serve another client later. A model on no device has no client, and its health and info are WEIR_ERR_DEVICE_LOST.
 * weir_model_metrics adds up all candidates, also then, so a request that failed on one and was answered by the next
 * counts as a run and as a failure; sessions are the present sessions. */

typedef enum weir_stage {
    WEIR_STAGE_DETECT = 0,    /* the device was there when it was chosen, and is not any more */
    WEIR_STAGE_CONSTRUCT = 1, /* engine, runtime, client */
    WEIR_STAGE_LOAD = 2,
    WEIR_STAGE_FIRST_RUN = 3,
    WEIR_STAGE_LATER_RUN = 4,
    WEIR_STAGE_COUNT
} weir_stage;

/* What became of a candidate. Texts are the model's, until it is unloaded. */
typedef struct weir_attempt {
    size_t struct_size;
    const char *engine, *provider, *device;
    weir_stage stage;   /* in which the candidate failed; of the serving candidate: the last stage reached */
    weir_status status; /* WEIR_OK: it serves */
    const char *reason; /* the detail; "" */
    double ms;          /* that the stage took */
    uint64_t bytes;     /* that its client had at most, up to the end of that stage */
    uint64_t parts,
        of; /* nodes or layers that the provider runs, and that the model has; 0 and 0: not loaded, or not told */
} weir_attempt;

typedef struct weir_record {
    size_t struct_size;
    const weir_choice *choice;
    const weir_attempt *attempts; /* in order */
    size_t attempt_count;
    bool on_cpu_unasked; /* it runs on the processor as the last resort */
    /* Attempts that are not listed: of those of one candidate that failed in the same stage with the same status, the
     * first and the newest are. So a record has an end, however long the model lives. */
    size_t left_out;
} weir_record;

typedef struct weir_opening_options {
    size_t struct_size;
    const weir_choice_options *choice; /* given hardware is believed: weir does not look at the devices again */
    bool no_fallback;                  /* the first accepted candidate or none, also later */
    /* make the first run while opening (the engine's warm_up), so that what fails there falls back here; an engine that
     * has no warm_up has its first run with the first request, and the record says "load" till then */
    bool first_run;
    uint64_t guaranteed, maximum; /* instead of the manifest's; 0: the manifest's */
    void (*progress)(double fraction, void *user);
    /* Told of each attempt when it has failed, of a last resort on the processor, and of parts that a provider leaves
     * to a processor that is forbidden: a sentence. On the thread that called; no lock is held. It and `progress` may
     * be called as long as the model lives; they may call weir, but not this model. */
    void (*notice)(const char *text, void *user);
    void *user;
    /* As in weir_model_options, with `user`; of later loads, too. */
    bool (*stops)(void *user);
    /* As in weir_model_options, of the model on the client's own device. A candidate on another device, or loaded while the
     * client has one, gets an account of its own, with the name and the limits that are given here or in the manifest. */
    weir_client *client;
    bool prepare; /* as in weir_model_options; after later loads, too */
} weir_opening_options;

/* Opens a model. `options` may be NULL. On failure nothing is left of it, the ledgers are as before, and the detail
 * names every candidate with its reason. Errors: those of weir_choice_create; WEIR_ERR_UNSUPPORTED when no candidate
 * was accepted, else what the last one failed with. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_model_create_chosen(const weir_manifest *manifest,
                                                             const weir_opening_options *options, weir_model **out);

/* How the model came to be where it is, up to now. What is handed out stays as it is until the model is unloaded:
 * each look after a change of the attempts leaves a copy of them (about 100 bytes and its reason for each), and one
 * without a change none. A program that lives long looks when it is told of something (`notice`), not by the clock.
 * WEIR_ERR_UNSUPPORTED for one of weir_model_create's. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_model_record(weir_model *model, weir_record *out);

WEIR_END
#endif
