/* The libraries beside the runtime: what the provider imports of them, which does nothing and succeeds. LIBRARY says which. */
#include "cudart.h"

#define BLAS     1
#define BLAS_LT  2
#define RANDOM   3
#define NETWORKS 4
#define ENGINES  5
#define PARSER   6
#define FOURIER  7 /* GenAI links to it, and calls nothing of it in what is run here */

/* An object that is not made. */
#define MAKES_NONE(name)                                                                                               \
    CUDART_FUNCTION(void *, name, (void))                                                                              \
    {                                                                                                                  \
        return NULL;                                                                                                   \
    }

#if LIBRARY == BLAS

static int handle; /* what an object is that nobody looks into */

CUDART_FUNCTION(int, cublasCreate_v2, (void **out))
{
    *out = &handle;
    return 0;
}

CUDART_FUNCTION(int, cublasGetMathMode, (const void *of, int *mode))
{
    (void)of;
    *mode = 0;
    return 0;
}

CUDART_FUNCTION(const char *, cublasGetStatusName, (int status))
{
    return status ? "an error" : "CUBLAS_STATUS_SUCCESS";
}

CUDART_FUNCTION(const char *, cublasGetStatusString, (int status))
{
    return cublasGetStatusName(status);
}

CUDART_NOTHING(cublasDestroy_v2)
CUDART_NOTHING(cublasSetMathMode)
CUDART_NOTHING(cublasSetStream_v2)
CUDART_NOTHING(cublasSetWorkspace_v2)
CUDART_NOTHING(cublasDgeam)
CUDART_NOTHING(cublasDgemmBatched)
CUDART_NOTHING(cublasDgemmStridedBatched)
CUDART_NOTHING(cublasDgemm_v2)
CUDART_NOTHING(cublasDgetrfBatched)
CUDART_NOTHING(cublasDgetriBatched)
CUDART_NOTHING(cublasGemmBatchedEx)
CUDART_NOTHING(cublasGemmEx)
CUDART_NOTHING(cublasGemmStridedBatchedEx)
CUDART_NOTHING(cublasScopy_v2)
CUDART_NOTHING(cublasSgeam)
CUDART_NOTHING(cublasSgemmBatched)
CUDART_NOTHING(cublasSgemmStridedBatched)
CUDART_NOTHING(cublasSgemm_v2)
CUDART_NOTHING(cublasSgetrfBatched)
CUDART_NOTHING(cublasSgetriBatched)
CUDART_NOTHING(cublasSscal_v2)
CUDART_NOTHING(cublasStrsmBatched)

#elif LIBRARY == BLAS_LT

static int handle;

CUDART_FUNCTION(int, cublasLtCreate, (void **out))
{
    *out = &handle;
    return 0;
}

CUDART_FUNCTION(int, cublasLtMatmulDescCreate, (void **out))
{
    return cublasLtCreate(out);
}

CUDART_FUNCTION(int, cublasLtMatmulPreferenceCreate, (void **out))
{
    return cublasLtCreate(out);
}

CUDART_FUNCTION(int, cublasLtMatrixLayoutCreate, (void **out))
{
    return cublasLtCreate(out);
}

CUDART_FUNCTION(int, cublasLtMatrixTransformDescCreate, (void **out))
{
    return cublasLtCreate(out);
}

CUDART_NOTHING(cublasLtDestroy)
CUDART_NOTHING(cublasLtMatmul)
CUDART_NOTHING(cublasLtMatmulAlgoConfigSetAttribute)
CUDART_NOTHING(cublasLtMatmulAlgoGetHeuristic)
CUDART_NOTHING(cublasLtMatmulAlgoInit)
CUDART_NOTHING(cublasLtMatmulDescDestroy)
CUDART_NOTHING(cublasLtMatmulDescSetAttribute)
CUDART_NOTHING(cublasLtMatmulPreferenceDestroy)
CUDART_NOTHING(cublasLtMatmulPreferenceSetAttribute)
CUDART_NOTHING(cublasLtMatrixLayoutDestroy)
CUDART_NOTHING(cublasLtMatrixLayoutSetAttribute)
CUDART_NOTHING(cublasLtMatrixTransform)
CUDART_NOTHING(cublasLtMatrixTransformDescDestroy)

#elif LIBRARY == RANDOM

CUDART_NOTHING(curandCreateGenerator)

#elif LIBRARY == NETWORKS

static int handle;

CUDART_FUNCTION(int, cudnnCreate, (void **out))
{
    *out = &handle;
    return 0;
}

#define MAKES(name)                                                                                                    \
    CUDART_FUNCTION(int, name, (void **out))                                                                           \
    {                                                                                                                  \
        return cudnnCreate(out);                                                                                       \
    }

/* Plans for convolutions and recurrent networks cannot be made up: a model with those fails cleanly. */
#define REFUSES(name)                                                                                                  \
    CUDART_FUNCTION(int, name, (void))                                                                                 \
    {                                                                                                                  \
        return 3000; /* CUDNN_STATUS_NOT_SUPPORTED */                                                                  \
    }

#define NEEDS_NO_SPACE(name)                                                                                           \
    CUDART_FUNCTION(int, name, (const void *of, const void *a, const void *b, const void *c, size_t *bytes))           \
    {                                                                                                                  \
        (void)of;                                                                                                      \
        (void)a;                                                                                                       \
        (void)b;                                                                                                       \
        (void)c;                                                                                                       \
        *bytes = 0;                                                                                                    \
        return 0;                                                                                                      \
    }

CUDART_FUNCTION(size_t, cudnnGetVersion, (void))
{
    return 91900;
}

CUDART_FUNCTION(const char *, cudnnGetErrorString, (int status))
{
    return status ? "an error" : "CUDNN_STATUS_SUCCESS";
}

CUDART_FUNCTION(void, cudnnGetLastErrorString, (char *text, size_t capacity))
{
    if (capacity)
        *text = 0;
}

CUDART_FUNCTION(int, cudnnGetStream, (const void *of, void **stream))
{
    (void)of;
    *stream = NULL;
    return 0;
}

CUDART_FUNCTION(int, cudnnDropoutGetStatesSize, (const void *of, size_t *bytes))
{
    (void)of;
    *bytes = 0;
    return 0;
}

NEEDS_NO_SPACE(cudnnGetReductionWorkspaceSize)
NEEDS_NO_SPACE(cudnnGetReductionIndicesSize)
MAKES(cudnnCreateActivationDescriptor)
MAKES(cudnnCreateConvolutionDescriptor)
MAKES(cudnnCreateDropoutDescriptor)
MAKES(cudnnCreateFilterDescriptor)
MAKES(cudnnCreateLRNDescriptor)
MAKES(cudnnCreatePoolingDescriptor)
MAKES(cudnnCreateRNNDataDescriptor)
MAKES(cudnnCreateRNNDescriptor)
MAKES(cudnnCreateReduceTensorDescriptor)
MAKES(cudnnCreateTensorDescriptor)
REFUSES(cudnnBackendCreateDescriptor)
REFUSES(cudnnBackendExecute)
REFUSES(cudnnBackendFinalize)
REFUSES(cudnnBackendGetAttribute)
REFUSES(cudnnBackendSetAttribute)
REFUSES(cudnnFindConvolutionForwardAlgorithmEx)
REFUSES(cudnnGetConvolutionForwardWorkspaceSize)
REFUSES(cudnnRNNForward)
REFUSES(cudnnGetRNNTempSpaceSizes)
REFUSES(cudnnGetRNNWeightParams)
CUDART_NOTHING(cudnnActivationForward)
CUDART_NOTHING(cudnnAddTensor)
CUDART_NOTHING(cudnnBatchNormalizationForwardInference)
CUDART_NOTHING(cudnnBatchNormalizationForwardTraining)
CUDART_NOTHING(cudnnConvolutionBiasActivationForward)
CUDART_NOTHING(cudnnConvolutionForward)
CUDART_NOTHING(cudnnDeriveBNTensorDescriptor)
CUDART_NOTHING(cudnnDestroy)
CUDART_NOTHING(cudnnDestroyActivationDescriptor)
CUDART_NOTHING(cudnnDestroyConvolutionDescriptor)
CUDART_NOTHING(cudnnDestroyDropoutDescriptor)
CUDART_NOTHING(cudnnDestroyFilterDescriptor)
CUDART_NOTHING(cudnnDestroyLRNDescriptor)
CUDART_NOTHING(cudnnDestroyPoolingDescriptor)
CUDART_NOTHING(cudnnDestroyRNNDataDescriptor)
CUDART_NOTHING(cudnnDestroyRNNDescriptor)
CUDART_NOTHING(cudnnDestroyReduceTensorDescriptor)
CUDART_NOTHING(cudnnDestroyTensorDescriptor)
CUDART_NOTHING(cudnnLRNCrossChannelForward)
CUDART_NOTHING(cudnnPoolingForward)
CUDART_NOTHING(cudnnReduceTensor)
CUDART_NOTHING(cudnnSetActivationDescriptor)
CUDART_NOTHING(cudnnSetConvolutionGroupCount)
CUDART_NOTHING(cudnnSetConvolutionMathType)
CUDART_NOTHING(cudnnSetConvolutionNdDescriptor)
CUDART_NOTHING(cudnnSetDropoutDescriptor)
CUDART_NOTHING(cudnnSetFilterNdDescriptor)
CUDART_NOTHING(cudnnSetLRNDescriptor)
CUDART_NOTHING(cudnnSetPoolingNdDescriptor)
CUDART_NOTHING(cudnnSetRNNDataDescriptor)
CUDART_NOTHING(cudnnSetReduceTensorDescriptor)
CUDART_NOTHING(cudnnSetStream)
CUDART_NOTHING(cudnnSetTensorNdDescriptor)
CUDART_NOTHING(cudnnSoftmaxForward)
CUDART_NOTHING(cudnnBackendDestroyDescriptor)

#elif LIBRARY == ENGINES

CUDART_FUNCTION(int, getInferLibVersion, (void))
{
    return 101300;
}

MAKES_NONE(createInferBuilder_INTERNAL)
MAKES_NONE(createInferRefitter_INTERNAL)
MAKES_NONE(createInferRuntime_INTERNAL)
MAKES_NONE(getPluginRegistry)

#elif LIBRARY == PARSER

MAKES_NONE(createNvOnnxParserRefitter_INTERNAL)
MAKES_NONE(createNvOnnxParser_INTERNAL)

#endif
