"""The current stream of each thread, and the C functions that tell it, as Cython exports them. Without those where FAKE_CUPY is
"old", with the first alone where it is "13"."""

import ctypes as c
import os
import threading


class _State(threading.local):
    device = 0
    stream = 0
    asked = 0


state = _State()


def _current():
    state.asked += 1
    return state.stream


def _of(device):
    state.asked += 1
    return state.stream if device == state.device else 0


_functions = {"get_current_stream_ptr": (b"intptr_t (void)", c.PYFUNCTYPE(c.c_ssize_t)(_current)),
              "get_stream_ptr": (b"intptr_t (int)", c.PYFUNCTYPE(c.c_ssize_t, c.c_int)(_of))}
_make = c.pythonapi.PyCapsule_New
_make.restype, _make.argtypes = c.py_object, [c.c_void_p, c.c_char_p, c.c_void_p]
_names = {"old": 0, "13": 1}.get(os.environ.get("FAKE_CUPY"), 2)
__pyx_capi__ = {name: _make(c.cast(function, c.c_void_p), signature, None)
                for name, (signature, function) in list(_functions.items())[:_names]}
