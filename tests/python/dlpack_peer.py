"""Another library for the tests: it hands tensors out by DLPack and takes them, by ctypes alone, and counts."""

import ctypes as c

from weir._c.dlpack import CPU, DELETER, DLTensor, Managed, Versioned

NAMES = {Managed: b"dltensor", Versioned: b"dltensor_versioned"}
USED = {name: b"used_" + name for name in NAMES.values()}  # capsules point to these
capsule_new = c.PYFUNCTYPE(c.py_object, c.c_void_p, c.c_char_p, c.c_void_p)(("PyCapsule_New", c.pythonapi))
capsule_pointer = c.PYFUNCTYPE(c.c_void_p, c.py_object, c.c_char_p)(("PyCapsule_GetPointer", c.pythonapi))
capsule_name = c.PYFUNCTYPE(c.c_char_p, c.py_object)(("PyCapsule_GetName", c.pythonapi))
capsule_rename = c.PYFUNCTYPE(c.c_int, c.py_object, c.c_char_p)(("PyCapsule_SetName", c.pythonapi))


class Taker:
    """Takes a capsule as libraries do; `give_back` calls its deleter."""

    def __init__(self, capsule):
        self.name = capsule_name(capsule)
        self.kind = {name: kind for kind, name in NAMES.items()}[self.name]
        self.address = capsule_pointer(capsule, self.name)
        self.managed = self.kind.from_address(self.address)
        capsule_rename(capsule, USED[self.name])
        self.tensor = self.managed.tensor
        self.shape = self.tensor.shape[:self.tensor.rank]
        self.strides = self.tensor.strides[:self.tensor.rank]

    def give_back(self):
        DELETER(self.managed.deleter)(self.address)


class Giver:
    """A tensor of float32 over `values`; it counts what was asked of it."""

    def __init__(self, values, shape, *, strides=None, device=(CPU, 0), pointer=None, offset=0, versioned=True, major=1, dtype=(2, 32, 1)):
        self.memory = (c.c_float * len(values))(*values)
        self.pointer = c.addressof(self.memory) if pointer is None else pointer
        self.shape, self.strides, self.device, self.offset = shape, strides, device, offset
        self.versioned, self.major, self.dtype = versioned, major, dtype
        self.asked, self.deleted, self.kept = [], 0, []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **words):
        if not self.versioned and "max_version" in words:
            raise TypeError("max_version is not known here")
        self.asked.append(words)
        managed = (Versioned if self.versioned else Managed)()
        extents = (c.c_int64 * len(self.shape))(*self.shape)
        strides = (c.c_int64 * len(self.shape))(*self.strides) if self.strides else None
        managed.tensor = DLTensor(self.pointer, *self.device, len(self.shape), *self.dtype, extents,
                                  c.cast(strides, c.POINTER(c.c_int64)) if strides else None, self.offset)

        def delete(_pointer):
            self.deleted += 1
        deleter = DELETER(delete)
        managed.deleter = c.cast(deleter, c.c_void_p)
        if self.versioned:
            managed.major = self.major
        self.kept += [managed, extents, strides, deleter]
        return capsule_new(c.addressof(managed), NAMES[type(managed)], None)
