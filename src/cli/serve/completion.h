/* completion.h: a request to go on with a text, in any protocol: the settings, the run, and the text piece by piece. */
#ifndef WEIR_CLI_SERVE_COMPLETION_H
#define WEIR_CLI_SERVE_COMPLETION_H

#include "serve.h"

enum { COMPLETION_SETTINGS = 32 };

typedef struct completion {
    served_run run; /* first */
    bool chat;      /* `prompt` are messages, as engines read them */
    bool embeds;    /* the prompt is lines, of which each gets a vector: no text is made */
    char *prompt;
    size_t bytes;
    int32_t *tokens; /* instead of it; NULL */
    size_t token_count;
    weir_setting settings[COMPLETION_SETTINGS];
    size_t setting_count;
    bool streams; /* the head of a stream is sent */
    char part[8]; /* of a character that the next piece ends */
    size_t part_bytes;
    uint64_t began, loaded, first, ended; /* nanoseconds of request, load, first piece and end; 0: not yet */
    weir_outputs out;                     /* of the run, until completion_release */
    /* Gets what is whole of the text, and answers whether more is wanted. Optional: NULL asks for no pieces. */
    bool (*take)(struct completion *it, const char *text, size_t bytes, const weir_piece *piece);
} completion;

/* Answers 400 with that sentence, and false. */
bool completion_wrong(completion *it, const char *format, ...) WEIR_PRINTF(2, 3);

/* ---- a stream, of events (text/event-stream) or of lines (application/x-ndjson) --------------------------------------- */

/* Sends the head, once. Not before the first piece: what fails until then is answered with a status. */
void completion_stream(completion *it, bool events);
/* Sends the object, which is taken. False: the client is gone. */
bool completion_send(completion *it, bool events, json_t *object);
/* In the middle of a stream `error`, which is taken, as the status is sent already; else the failure's own answer. */
void completion_fail(completion *it, bool events, weir_status status, json_t *error);

/* ---- settings: those that a request has twice have the later value ------------------------------------------------ */

/* Takes `value`, of malloc's. */
void completion_set(completion *it, const char *key, char *value);
/* The member `field` of the object, if it is there and not null, as a number: else 400. */
bool completion_number(completion *it, const json_t *object, const char *field, const char *key);
/* Lines of a word or an array of words, with a backslash before what would be no part of a line; empty words are none. NULL: they
 * are no words. For the caller to free. */
char *completion_words(const json_t *words);
/* "stop": a word or an array of words, or nothing. */
bool completion_stop(completion *it, const json_t *stop);
/* Where nothing was said: one that no request had before, so that the same request is not answered alike for ever. */
void completion_seed(completion *it);
/* The text has to be JSON: any object (NULL), or of the schema. `field` is the request's member that asks for JSON. An
 * engine without grammars, and a schema that says what cannot be held, are refused with 400. */
bool completion_format(completion *it, const char *model, const char *field, const json_t *schema);

/* ---- the prompt ---------------------------------------------------------------------------------------------------- */

/* An array of messages, each with a role and a text, or an array of parts that are texts. */
bool completion_messages(completion *it, const json_t *messages);
void completion_message(FILE *to, const char *role, const char *text, size_t bytes);
bool completion_text(completion *it, const char *text, size_t bytes);
/* A text or an array of texts to be embedded; answers how many, 0: it is answered. A newline in one becomes a blank, as
 * OpenAI's guide has it, for texts are lines for an engine. */
size_t completion_lines(completion *it, const json_t *input);

/* ---- the run ------------------------------------------------------------------------------------------------------- */

/* Loads the model; false: it is answered. Then runs it, as often as is wanted, each run's results released. */
bool completion_begin(completion *it, const char *model);
weir_status completion_run(completion *it);
void completion_release(completion *it);
void completion_end(completion *it); /* gives the model back; nothing without one */
void completion_clear(completion *it);

const weir_tensor *completion_output(const completion *it, const char *name);
/* Returns the vectors of `count` texts, for an answer in numbers or in their bytes; NULL: the request is answered, as the number
 * of vectors is not `count`, or JSON has no form for one of the numbers. */
const weir_tensor *completion_vectors(const completion *it, size_t count, bool as_numbers);
/* Row number `at` of them. */
json_t *completion_vector_json(const weir_tensor *rows, size_t at);
const char *completion_finish(const completion *it); /* "stop", "length" */
uint64_t completion_prompt_tokens(const completion *it);
uint64_t completion_tokens(const completion *it);

/* schema.c: the grammar of the JSON values that a schema allows, as GBNF, for the caller to free; NULL schema: of objects.
 * NULL: it says what a grammar cannot hold, which is *why, for the caller to free. */
char *schema_grammar(const json_t *schema, char **why);

/* ---- what the files of Ollama's interface share: ollama.c, ollama_models.c --------------------------------------- */

/* "2026-11-23T09:30:05.000000001Z", of so many nanoseconds from now. */
void ollama_time(int64_t from_now, char *text, size_t room);
/* The model, keep_alive and options of a request. False: it is answered. */
bool ollama_read(completion *it, const json_t *body, const char **model);
/* total_duration and so on of a run that has ended. */
void ollama_add_times(json_t *to, const completion *it);
/* Returns the context that the model is loaded with, in tokens of prompt and answer together; 0: the model has no
 * context, or the size is unknown. */
uint64_t ollama_context(served_model *model);

#endif
