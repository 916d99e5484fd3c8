"""ONNX Runtime GenAI of the store through its C interface: what test_llm_model.py asks the real library."""

import ctypes
import os
from pathlib import Path

# Its functions that answer with an error or NULL.
FALLIBLE = ("OgaCreateModel", "OgaCreateTokenizer", "OgaCreateSequences", "OgaCreateGeneratorParams", "OgaCreateGenerator",
            "OgaGeneratorParamsSetSearchNumber", "OgaGenerator_AppendTokens", "OgaGenerator_GenerateNextToken",
            "OgaTokenizerEncode", "OgaTokenizerDecode", "OgaTokenizerApplyChatTemplate")


def libraries(home):
    """Where the store has GenAI and ONNX Runtime; None without both."""
    found = [home / "engines/onnxruntime-genai/current/libonnxruntime-genai.so", home / "engines/onnxruntime/current/libonnxruntime.so"]
    return found if all(path.exists() for path in found) else None


class Library:
    def __init__(self, home):
        path, runtime = libraries(home)
        # Both libraries tell their maker what they run, unless they are told not to.
        os.environ.update(ORT_LIB_PATH=str(Path(runtime).resolve()), ORT_DISABLE_TELEMETRY="1")
        self.c = ctypes.CDLL(str(path))
        for name in FALLIBLE:
            getattr(self.c, name).restype = ctypes.c_void_p
        self.c.OgaResultGetError.restype = ctypes.c_char_p
        self.c.OgaGenerator_IsDone.restype = ctypes.c_bool
        for name in ("OgaGenerator_GetSequenceCount", "OgaSequencesGetSequenceCount"):
            getattr(self.c, name).restype = ctypes.c_size_t
        for name in ("OgaGenerator_GetSequenceData", "OgaSequencesGetSequenceData"):
            getattr(self.c, name).restype = ctypes.POINTER(ctypes.c_int32)

    def call(self, name, *words):
        result = getattr(self.c, name)(*words)
        if result:
            error = ctypes.c_void_p(result)
            text = self.c.OgaResultGetError(error).decode()
            self.c.OgaDestroyResult(error)
            raise RuntimeError(f"{name}: {text}")

    def made(self, name, *words):
        thing = ctypes.c_void_p()
        self.call(name, *words, ctypes.byref(thing))
        return thing


class Model:
    """A model and its tokenizer; with: both are gone afterwards."""

    def __init__(self, library, folder):
        self.library, self.c = library, library.c
        self.model = library.made("OgaCreateModel", os.fsencode(folder))
        self.tokenizer = library.made("OgaCreateTokenizer", self.model)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.c.OgaDestroyTokenizer(self.tokenizer)
        self.c.OgaDestroyModel(self.model)

    def encode(self, text):
        sequences = self.library.made("OgaCreateSequences")
        try:
            self.library.call("OgaTokenizerEncode", self.tokenizer, text.encode(), sequences)
            count = self.c.OgaSequencesGetSequenceCount(sequences, ctypes.c_size_t(0))
            return self.c.OgaSequencesGetSequenceData(sequences, ctypes.c_size_t(0))[:count]
        finally:
            self.c.OgaDestroySequences(sequences)

    def text(self, pointer):
        try:
            return ctypes.string_at(pointer).decode()
        finally:
            self.c.OgaDestroyString(pointer)

    def decode(self, tokens):
        data = (ctypes.c_int32 * len(tokens))(*tokens)
        return self.text(self.library.made("OgaTokenizerDecode", self.tokenizer, data, ctypes.c_size_t(len(tokens))))

    def chat(self, messages):
        return self.text(self.library.made("OgaTokenizerApplyChatTemplate", self.tokenizer, None, messages.encode(), None,
                                           ctypes.c_bool(True)))

    def greedy(self, prompts, count, pad=None):
        """The likeliest tokens behind each prompt; shorter prompts get pads, as GenAI fills them up."""
        longest = max(map(len, prompts))
        rows = [prompt + [pad] * (longest - len(prompt)) for prompt in prompts]
        flat = [token for row in rows for token in row]
        params = self.library.made("OgaCreateGeneratorParams", self.model)
        for name, value in (("batch_size", len(rows)), ("max_length", longest + count)):
            self.library.call("OgaGeneratorParamsSetSearchNumber", params, name.encode(), ctypes.c_double(value))
        generator = self.library.made("OgaCreateGenerator", self.model, params)
        try:
            self.library.call("OgaGenerator_AppendTokens", generator, (ctypes.c_int32 * len(flat))(*flat),
                              ctypes.c_size_t(len(flat)))
            while not self.c.OgaGenerator_IsDone(generator):
                self.library.call("OgaGenerator_GenerateNextToken", generator)
            return [self.c.OgaGenerator_GetSequenceData(generator, ctypes.c_size_t(i))[
                longest:self.c.OgaGenerator_GetSequenceCount(generator, ctypes.c_size_t(i))] for i in range(len(rows))]
        finally:
            self.c.OgaDestroyGenerator(generator)
            self.c.OgaDestroyGeneratorParams(params)
