/* oga.h: the part of ONNX Runtime GenAI's C interface that weir uses, in own declarations (0.18.0; the wheels carry no
 * header). None of these functions is linked: library.c looks them up. Those that answer an oga_result answer NULL for
 * success; no function lets an exception through. */
#ifndef WL_OGA_H
#define WL_OGA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct oga_result oga_result;
typedef struct oga_config oga_config;
typedef struct oga_model oga_model;
typedef struct oga_tokenizer oga_tokenizer;
typedef struct oga_tokenizer_stream oga_tokenizer_stream;
typedef struct oga_sequences oga_sequences;
typedef struct oga_generator_params oga_generator_params;
typedef struct oga_generator oga_generator;
typedef struct oga_tensor oga_tensor;
typedef struct oga_engine oga_engine;
typedef struct oga_request oga_request;
typedef struct oga_request_options oga_request_options;
typedef struct oga_turn_options oga_turn_options;
typedef struct oga_event oga_event;
typedef struct oga_event_buffer oga_event_buffer;

enum { OGA_FLOAT32 = 1 };                                                    /* of a tensor: ONNX Runtime's numbers */
enum { OGA_EVENT_TOKEN = 1, OGA_EVENT_FINISHED = 2, OGA_EVENT_BLOCKED = 4 }; /* bits */
enum { OGA_EVENT_FAILED = 8, OGA_EVENT_RETRYABLE = 16 };
enum {
    OGA_FINISH_EOS = 1,
    OGA_FINISH_LENGTH = 3,
    OGA_FINISH_SESSION = 4,
    OGA_FINISH_CANCELLED = 5,
    OGA_FINISH_FAILED = 6
};

/* ---- errors and texts -------------------------------------------------------------------------------------------- */

const char *OgaResultGetError(const oga_result *result);
void OgaDestroyResult(oga_result *result);
void OgaDestroyString(const char *text);
void OgaSetTelemetryEnabled(bool enabled);
void OgaShutdown(void); /* without a model */

/* ---- models ------------------------------------------------------------------------------------------------------ */

oga_result *OgaCreateConfig(const char *folder, oga_config **out);
oga_result *OgaConfigClearProviders(oga_config *config);
oga_result *OgaConfigAppendProvider(oga_config *config, const char *provider);
oga_result *OgaConfigOverlay(oga_config *config, const char *json);
void OgaDestroyConfig(oga_config *config);
oga_result *OgaCreateModelFromConfig(const oga_config *config, oga_model **out);
void OgaDestroyModel(oga_model *model);

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

oga_result *OgaCreateTokenizer(const oga_model *model, oga_tokenizer **out);
void OgaDestroyTokenizer(oga_tokenizer *tokenizer);
oga_result *OgaTokenizerEncode(const oga_tokenizer *tokenizer, const char *text, oga_sequences *sequences);
oga_result *OgaTokenizerApplyChatTemplate(const oga_tokenizer *tokenizer, const char *jinja, const char *messages,
                                          const char *tools, bool answer_begins, const char **out);
oga_result *OgaTokenizerGetEosTokenIds(const oga_tokenizer *tokenizer, const int32_t **out, size_t *count);
oga_result *OgaCreateTokenizerStream(const oga_tokenizer *tokenizer, oga_tokenizer_stream **out);
oga_result *OgaTokenizerStreamDecode(oga_tokenizer_stream *stream, int32_t token, const char **out); /* the stream's */
void OgaDestroyTokenizerStream(oga_tokenizer_stream *stream);
oga_result *OgaCreateSequences(oga_sequences **out);
void OgaDestroySequences(oga_sequences *sequences);
size_t OgaSequencesGetSequenceCount(const oga_sequences *sequences, size_t index); /* its tokens */
const int32_t *OgaSequencesGetSequenceData(const oga_sequences *sequences, size_t index);

/* ---- one sequence ------------------------------------------------------------------------------------------------ */

oga_result *OgaCreateGeneratorParams(const oga_model *model, oga_generator_params **out);
void OgaDestroyGeneratorParams(oga_generator_params *params);
oga_result *OgaGeneratorParamsSetSearchNumber(oga_generator_params *params, const char *name, double value);
oga_result *OgaGeneratorParamsSetSearchBool(oga_generator_params *params, const char *name, bool value);
oga_result *OgaGeneratorParamsSetGuidance(oga_generator_params *params, const char *kind, const char *data,
                                          bool fast_forward);
oga_result *OgaCreateGenerator(const oga_model *model, const oga_generator_params *params, oga_generator **out);
void OgaDestroyGenerator(oga_generator *generator);
oga_result *OgaGenerator_AppendTokens(oga_generator *generator, const int32_t *tokens, size_t count);
oga_result *OgaGenerator_GenerateNextToken(oga_generator *generator);
bool OgaGenerator_IsDone(oga_generator *generator);
size_t OgaGenerator_GetSequenceCount(const oga_generator *generator, size_t index); /* its tokens */
const int32_t *OgaGenerator_GetSequenceData(const oga_generator *generator, size_t index);
oga_result *OgaGenerator_GetLogits(oga_generator *generator, oga_tensor **out); /* a copy */
oga_result *OgaGenerator_SetRuntimeOption(oga_generator *generator, const char *key, const char *value);
oga_result *OgaTensorGetType(oga_tensor *tensor, int32_t *out);
oga_result *OgaTensorGetShapeRank(oga_tensor *tensor, size_t *out);
oga_result *OgaTensorGetShape(oga_tensor *tensor, int64_t *shape, size_t rank);
oga_result *OgaTensorGetData(oga_tensor *tensor, void **out);
void OgaDestroyTensor(oga_tensor *tensor);

/* ---- several sequences together: all on the thread that has created the engine ----------------------------------- */

oga_result *OgaCreateEngine(oga_model *model, oga_engine **out);
void OgaDestroyEngine(oga_engine *engine);
oga_result *OgaEngineCreateRequest(oga_engine *engine, const oga_request_options *options, oga_request **out);
oga_result *OgaCreateRequestOptions(oga_request_options **out);
void OgaDestroyRequestOptions(oga_request_options *options);
oga_result *OgaRequestOptionsSetMaxSessionTokens(oga_request_options *options, uint64_t tokens);
oga_result *OgaRequestCreateTurnOptions(oga_request *request, oga_turn_options **out);
void OgaDestroyTurnOptions(oga_turn_options *options);
oga_result *OgaTurnOptionsSetMaxGeneratedTokens(oga_turn_options *options, uint64_t tokens);
oga_result *OgaTurnOptionsSetMinGeneratedTokens(oga_turn_options *options, uint64_t tokens);
oga_result *OgaTurnOptionsSetDoSample(oga_turn_options *options, bool sample);
oga_result *OgaTurnOptionsSetTemperature(oga_turn_options *options, float temperature);
oga_result *OgaTurnOptionsSetTopP(oga_turn_options *options, float top_p);
oga_result *OgaTurnOptionsSetTopK(oga_turn_options *options, int32_t top_k);
oga_result *OgaTurnOptionsSetRepetitionPenalty(oga_turn_options *options, float penalty);
oga_result *OgaTurnOptionsSetNoRepeatNgramSize(oga_turn_options *options, int32_t size);
oga_result *OgaTurnOptionsSetSeed(oga_turn_options *options, uint64_t seed);
oga_result *OgaTurnOptionsSetGuidance(oga_turn_options *options, const char *kind, const char *data);
oga_result *OgaRequestBeginTurn(oga_request *request, const oga_turn_options *options, const int32_t *tokens,
                                uint64_t count, uint64_t *turn);
oga_result *OgaRequestClose(oga_request *request);
void OgaDestroyRequest(oga_request *request);
oga_result *OgaCreateEngineEventBuffer(oga_engine *engine, size_t capacity, oga_event_buffer **out);
void OgaDestroyEngineEventBuffer(oga_event_buffer *buffer);
oga_result *OgaEngineRun(oga_engine *engine, oga_event_buffer *buffer);
size_t OgaEngineEventBufferGetCount(const oga_event_buffer *buffer);
const oga_event *OgaEngineEventBufferGet(const oga_event_buffer *buffer, size_t index);
oga_result *OgaEngineEventGetFlags(const oga_event *event, uint32_t *out);
oga_result *OgaEngineEventGetRequest(const oga_event *event, const oga_request **out);
oga_result *OgaEngineEventGetToken(const oga_event *event, int32_t *out);
oga_result *OgaEngineEventGetFinishReason(const oga_event *event, uint32_t *out);
oga_result *OgaEngineEventGetErrorCode(const oga_event *event, uint32_t *out);

/* clang-format off */
#define OGA_FUNCTIONS(X)                                                                                              \
    X(OgaResultGetError) X(OgaDestroyResult) X(OgaDestroyString) X(OgaSetTelemetryEnabled) X(OgaShutdown)                       \
    X(OgaCreateConfig) X(OgaConfigClearProviders) X(OgaConfigAppendProvider)            \
    X(OgaConfigOverlay) X(OgaDestroyConfig) X(OgaCreateModelFromConfig) X(OgaDestroyModel)                            \
    X(OgaCreateTokenizer) X(OgaDestroyTokenizer) X(OgaTokenizerEncode) X(OgaTokenizerApplyChatTemplate)               \
    X(OgaTokenizerGetEosTokenIds) X(OgaCreateTokenizerStream) X(OgaTokenizerStreamDecode) X(OgaDestroyTokenizerStream)                              \
    X(OgaCreateSequences) X(OgaDestroySequences) X(OgaSequencesGetSequenceCount) X(OgaSequencesGetSequenceData)       \
    X(OgaCreateGeneratorParams) X(OgaDestroyGeneratorParams) X(OgaGeneratorParamsSetSearchNumber)                     \
    X(OgaGeneratorParamsSetSearchBool) X(OgaGeneratorParamsSetGuidance) X(OgaCreateGenerator) X(OgaDestroyGenerator)  \
    X(OgaGenerator_AppendTokens) X(OgaGenerator_GenerateNextToken) X(OgaGenerator_IsDone)                             \
    X(OgaGenerator_GetSequenceCount) X(OgaGenerator_GetSequenceData) X(OgaGenerator_GetLogits)                        \
    X(OgaGenerator_SetRuntimeOption) X(OgaTensorGetType) X(OgaTensorGetShapeRank) X(OgaTensorGetShape)                \
    X(OgaTensorGetData) X(OgaDestroyTensor)                                                                           \
    X(OgaCreateEngine) X(OgaDestroyEngine) X(OgaEngineCreateRequest) X(OgaCreateRequestOptions)                       \
    X(OgaDestroyRequestOptions) X(OgaRequestOptionsSetMaxSessionTokens) X(OgaRequestCreateTurnOptions)                \
    X(OgaDestroyTurnOptions) X(OgaTurnOptionsSetMaxGeneratedTokens) X(OgaTurnOptionsSetMinGeneratedTokens)            \
    X(OgaTurnOptionsSetDoSample) X(OgaTurnOptionsSetTemperature) X(OgaTurnOptionsSetTopP) X(OgaTurnOptionsSetTopK)    \
    X(OgaTurnOptionsSetRepetitionPenalty) X(OgaTurnOptionsSetNoRepeatNgramSize) X(OgaTurnOptionsSetSeed)              \
    X(OgaTurnOptionsSetGuidance) X(OgaRequestBeginTurn) X(OgaRequestClose)                    \
    X(OgaDestroyRequest) X(OgaCreateEngineEventBuffer) X(OgaDestroyEngineEventBuffer) X(OgaEngineRun)                 \
    X(OgaEngineEventBufferGetCount) X(OgaEngineEventBufferGet)                         \
    X(OgaEngineEventGetFlags) X(OgaEngineEventGetRequest) X(OgaEngineEventGetToken)                                   \
    X(OgaEngineEventGetFinishReason) X(OgaEngineEventGetErrorCode)
/* clang-format on */

#endif
