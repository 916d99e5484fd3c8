/* See elf_imports.h. */
#include "interpose/elf_imports.h"

#include <inttypes.h>

#ifndef DT_RELR
#define DT_RELR 36
#endif

/* What <elf.h> need not have. */
enum {
    TAG_ANDROID_REL = 0x6000000f,
    TAG_ANDROID_RELA = 0x60000011,
    TAG_X86_64_PLT = 0x70000000,
};

/* Reading ---------------------------------------------------------------------------------------------------------- */

/* Finds the segment that contains all bytes from the address on; NULL: none. */
static const Elf64_Phdr *segment_of(const wi_elf_module *m, uint64_t address, uint64_t bytes)
{
    for (size_t i = 0; i < m->image.count; i++) {
        const Elf64_Phdr *s = &m->image.segments[i];
        if (s->p_type == PT_LOAD && address >= s->p_vaddr && address - s->p_vaddr <= s->p_memsz &&
            bytes <= s->p_memsz - (address - s->p_vaddr))
            return s;
    }
    return NULL;
}

static const void *memory_at(const wi_elf_module *m, uint64_t address)
{
    return (const void *)(m->image.bias + (uintptr_t)address); // NOLINT(performance-no-int-to-ptr)
}

/* Copies what lies at an address of the file's; false where the module has nothing to read there. */
static bool copy_from(const wi_elf_module *m, uint64_t address, void *to, size_t bytes)
{
    const Elf64_Phdr *s = segment_of(m, address, bytes);
    if (!s || !(s->p_flags & PF_R))
        return false;
    memcpy(to, memory_at(m, address), bytes);
    return true;
}

/* An entry of a table; false also where its address is none. */
static bool copy_entry(const wi_elf_module *m, uint64_t table, uint64_t index, void *to, size_t bytes)
{
    return table != 0 && index <= (UINT64_MAX - table) / bytes && copy_from(m, table + index * bytes, to, bytes);
}

/* NULL: the text does not end inside of the table. */
static const char *elf_imports_text_at(const wi_elf_module *m, uint64_t offset)
{
    const Elf64_Phdr *s = segment_of(m, m->texts.address, m->texts.bytes);
    if (!s || !(s->p_flags & PF_R) || offset >= m->texts.bytes)
        return NULL;
    const char *text = memory_at(m, m->texts.address + offset);
    return memchr(text, 0, (size_t)(m->texts.bytes - offset)) ? text : NULL;
}

static weir_status elf_imports_broken(const wi_elf_module *m, const char *what)
{
    return weir_fail(WEIR_ERR_CORRUPT, "%s: %s", m->image.name, what);
}

/* The header ------------------------------------------------------------------------------------------------------- */

uint16_t wi_elf_own_machine(void)
{
#if defined(__x86_64__)
    return EM_X86_64;
#elif defined(__aarch64__)
    return EM_AARCH64;
#else
    return EM_NONE;
#endif
}

/* The header lies at the beginning of the file, which some segment has. */
static bool copy_header(const wi_elf_module *m, Elf64_Ehdr *out)
{
    for (size_t i = 0; i < m->image.count; i++) {
        const Elf64_Phdr *s = &m->image.segments[i];
        if (s->p_type == PT_LOAD && s->p_offset == 0)
            return copy_from(m, s->p_vaddr, out, sizeof *out);
    }
    return false;
}

static weir_status elf_imports_read_header(wi_elf_module *m)
{
    Elf64_Ehdr header;
    if (!copy_header(m, &header) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: no segment begins with an ELF header", m->image.name);
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: no module of 64 bits, little endian", m->image.name);
    if (header.e_machine != EM_X86_64 && header.e_machine != EM_AARCH64)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s is for machine %u; x86-64 (%d) and arm64 (%d) are understood",
                         m->image.name, header.e_machine, EM_X86_64, EM_AARCH64);
    m->machine = header.e_machine;
    return WEIR_OK;
}

/* The dynamic section ---------------------------------------------------------------------------------------------- */

/* An address of the dynamic section in the file's terms: the dynamic linker has added the bias, in most modules. */
static uint64_t of_file(const wi_elf_module *m, uint64_t value)
{
    uint64_t without = value - m->image.bias;
    return value >= m->image.bias && segment_of(m, without, 1) ? without : value;
}

/* What the tags of the dynamic section have to be put together from. */
typedef struct tags {
    uint64_t plt_form, rela_entry, rel_entry, symbol_entry, hash, gnu_hash;
} tags;

/* The entry number `index`; DT_NULL beyond the last. */
static Elf64_Dyn dynamic_at(const wi_elf_module *m, uint64_t index)
{
    Elf64_Dyn entry;
    if (index < m->dynamic.bytes / sizeof entry && copy_entry(m, m->dynamic.address, index, &entry, sizeof entry))
        return entry;
    return (Elf64_Dyn){.d_tag = DT_NULL};
}

static void read_tags(wi_elf_module *m, tags *t)
{
    const struct {
        int64_t tag;
        uint64_t *to;
        bool address;
    } known[] = {{DT_STRTAB, &m->texts.address, true},
                 {DT_STRSZ, &m->texts.bytes, false},
                 {DT_SYMTAB, &m->symbols, true},
                 {DT_SYMENT, &t->symbol_entry, false},
                 {DT_RELA, &m->rela.address, true},
                 {DT_RELASZ, &m->rela.bytes, false},
                 {DT_RELAENT, &t->rela_entry, false},
                 {DT_RELACOUNT, &m->rela_relative, false},
                 {DT_REL, &m->rel.address, true},
                 {DT_RELSZ, &m->rel.bytes, false},
                 {DT_RELENT, &t->rel_entry, false},
                 {DT_JMPREL, &m->plt.address, true},
                 {DT_PLTRELSZ, &m->plt.bytes, false},
                 {DT_PLTREL, &t->plt_form, false},
                 {DT_HASH, &t->hash, true},
                 {DT_GNU_HASH, &t->gnu_hash, true}};
    Elf64_Dyn entry;
    for (uint64_t i = 0; (entry = dynamic_at(m, i)).d_tag != DT_NULL; i++) {
        uint64_t value = entry.d_un.d_val;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            if (known[k].tag == entry.d_tag)
                *known[k].to = known[k].address ? of_file(m, value) : value;
        m->needs_text_writes |= entry.d_tag == DT_TEXTREL || (entry.d_tag == DT_FLAGS && value & DF_TEXTREL);
        m->unknown_packing |= entry.d_tag == TAG_ANDROID_REL || entry.d_tag == TAG_ANDROID_RELA;
        m->plt_may_be_direct |= entry.d_tag == TAG_X86_64_PLT && m->machine == EM_X86_64;
    }
}

/* Symbols ---------------------------------------------------------------------------------------------------------- */

/* DT_GNU_HASH: the highest symbol of a chain; what the module only imports lies before the first, or nowhere at all
 * where it defines nothing. */
static bool count_by_gnu_hash(const wi_elf_module *m, uint64_t table, uint64_t *count)
{
    uint32_t head[4], last = 0, link; /* head: buckets, first symbol, words of the filter, shift */
    if (!copy_from(m, table, head, sizeof head))
        return false;
    uint64_t buckets = table + sizeof head + head[2] * UINT64_C(8), chains = buckets + head[0] * UINT64_C(4);
    if (!segment_of(m, buckets, head[0] * UINT64_C(4)))
        return false;
    for (uint32_t i = 0; i < head[0]; i++)
        if (copy_entry(m, buckets, i, &link, sizeof link) && link > last)
            last = link;
    *count = head[1];
    if (last < head[1])
        return true;
    do {
        if (!copy_entry(m, chains, last - head[1], &link, sizeof link) || last == UINT32_MAX)
            return false;
        last++;
    } while (!(link & 1));
    *count = last;
    return true;
}

static bool count_by_hash(const wi_elf_module *m, uint64_t table, uint64_t *count)
{
    uint32_t head[2]; /* buckets, chains: one for each symbol */
    if (!copy_from(m, table, head, sizeof head))
        return false;
    *count = head[1];
    return true;
}

static bool copy_symbol(const wi_elf_module *m, uint64_t index, Elf64_Sym *out)
{
    return copy_entry(m, m->symbols, index, out, sizeof *out);
}

static weir_status count_symbols(wi_elf_module *m, const tags *t)
{
    Elf64_Sym last;
    bool counted = t->hash       ? count_by_hash(m, t->hash, &m->symbol_count)
                   : t->gnu_hash ? count_by_gnu_hash(m, t->gnu_hash, &m->symbol_count)
                                 : false;
    if (!counted || (m->symbol_count > 0 && !copy_symbol(m, m->symbol_count - 1, &last)))
        return elf_imports_broken(m, "no table of hashes tells how many symbols there are");
    return WEIR_OK;
}

/* Opening ---------------------------------------------------------------------------------------------------------- */

static weir_status elf_imports_check_table(const wi_elf_module *m, const wi_elf_table *table, const char *what)
{
    return table->bytes == 0 || segment_of(m, table->address, table->bytes) ? WEIR_OK : elf_imports_broken(m, what);
}

static weir_status elf_imports_check_sizes(const wi_elf_module *m, const tags *t)
{
    bool known = (t->rela_entry == 0 || t->rela_entry == sizeof(Elf64_Rela)) &&
                 (t->rel_entry == 0 || t->rel_entry == sizeof(Elf64_Rel)) &&
                 (t->symbol_entry == 0 || t->symbol_entry == sizeof(Elf64_Sym)) &&
                 (m->plt.bytes == 0 || t->plt_form == DT_RELA || t->plt_form == DT_REL);
    return known ? WEIR_OK
                 : weir_fail(WEIR_ERR_UNSUPPORTED, "%s: its relocations or symbols are not of the usual size",
                             m->image.name);
}

static weir_status check_tables(wi_elf_module *m, const tags *t)
{
    weir_status status = elf_imports_check_sizes(m, t);
    if (status == WEIR_OK)
        status = elf_imports_check_table(m, &m->texts, "its names leave it");
    if (status == WEIR_OK)
        status = elf_imports_check_table(m, &m->rela, "DT_RELA leaves it");
    if (status == WEIR_OK)
        status = elf_imports_check_table(m, &m->rel, "DT_REL leaves it");
    if (status == WEIR_OK)
        status = elf_imports_check_table(m, &m->plt, "DT_JMPREL leaves it");
    return status == WEIR_OK ? count_symbols(m, t) : status;
}

static void find_segments(wi_elf_module *m)
{
    for (size_t i = 0; i < m->image.count; i++) {
        const Elf64_Phdr *s = &m->image.segments[i];
        if (s->p_type == PT_DYNAMIC)
            m->dynamic = (wi_elf_table){s->p_vaddr, s->p_memsz};
        if (s->p_type == PT_GNU_RELRO)
            m->read_only = (wi_elf_table){s->p_vaddr, s->p_memsz};
    }
}

weir_status wi_elf_open(const wi_elf_image *image, wi_elf_module *out)
{
    tags t = {0};
    *out = (wi_elf_module){.image = *image};
    weir_status status = elf_imports_read_header(out);
    if (status != WEIR_OK)
        return status;
    find_segments(out);
    if (out->dynamic.bytes == 0)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s is linked statically: it imports nothing", image->name);
    read_tags(out, &t);
    out->plt_has_addends = t.plt_form == DT_RELA;
    return check_tables(out, &t);
}

/* Relocations ------------------------------------------------------------------------------------------------------ */

static wi_elf_use use_of(uint16_t machine, uint32_t type)
{
    static const struct {
        uint16_t machine;
        uint32_t type;
        wi_elf_use use;
    } known[] = {{EM_X86_64, R_X86_64_JUMP_SLOT, WI_ELF_JUMP_SLOT}, {EM_X86_64, R_X86_64_GLOB_DAT, WI_ELF_GLOB_DAT},
                 {EM_X86_64, R_X86_64_64, WI_ELF_ADDRESS},          {EM_AARCH64, R_AARCH64_JUMP_SLOT, WI_ELF_JUMP_SLOT},
                 {EM_AARCH64, R_AARCH64_GLOB_DAT, WI_ELF_GLOB_DAT}, {EM_AARCH64, R_AARCH64_ABS64, WI_ELF_ADDRESS}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].machine == machine && known[i].type == type)
            return known[i].use;
    return WI_ELF_OTHER;
}

/* The addend of a jump slot is no part of what is in the slot (with -z mark-plt it is where the PLT's entry is). */
static bool adds(wi_elf_use use, int64_t addend)
{
    return use != WI_ELF_JUMP_SLOT && addend != 0;
}

static weir_status elf_imports_tell(const wi_elf_module *m, uint64_t image, uint64_t info, int64_t addend,
                                    wi_elf_import_fn fn, void *user)
{
    Elf64_Sym symbol;
    uint32_t index = ELF64_R_SYM(info), type = ELF64_R_TYPE(info);
    wi_elf_use use = use_of(m->machine, type);
    /* What is no slot may be shorter than an address: a variable of four bytes that is copied to the end of a segment. */
    const Elf64_Phdr *segment = segment_of(m, image, use == WI_ELF_OTHER ? 1 : sizeof(uint64_t));
    const char *name = copy_symbol(m, index, &symbol) ? elf_imports_text_at(m, symbol.st_name) : NULL;
    if (!name || !segment)
        return elf_imports_broken(m, "a relocation, its symbol or its name lies outside of it");
    wi_elf_import import = {.name = name,
                            .use = use,
                            .type = type,
                            .slot = m->image.bias + (uintptr_t)image,
                            .has_addend = adds(use, addend),
                            .defined = symbol.st_shndx != SHN_UNDEF,
                            .indirect = ELF64_ST_TYPE(symbol.st_info) == STT_GNU_IFUNC,
                            .writable = (segment->p_flags & PF_W) != 0};
    import.aligned = import.slot % sizeof(void *) == 0;
    return fn(&import, user);
}

typedef struct telling {
    bool (*wants)(const char *name, void *user); /* NULL: all */
    wi_elf_import_fn fn;
    void *user;
    uint32_t unwanted; /* the last symbol that was not; 0: none was yet */
} telling;

static bool is_unwanted(const wi_elf_module *m, telling *t, uint32_t index)
{
    Elf64_Sym symbol;
    if (index == 0 || index == t->unwanted)
        return true;
    const char *name = t->wants && copy_symbol(m, index, &symbol) ? elf_imports_text_at(m, symbol.st_name) : NULL;
    if (!name || t->wants(name, t->user))
        return false;
    t->unwanted = index;
    return true;
}

/* Of a large library's, a hundred thousand, most name no symbol, and most others that of the one before. */
static weir_status each_of(const wi_elf_module *m, const wi_elf_table *table, bool addends, telling *t)
{
    weir_status status = WEIR_OK;
    size_t bytes = addends ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
    uint64_t count = table->bytes / bytes;
    const Elf64_Phdr *segment = segment_of(m, table->address, count * bytes);
    if (count == 0)
        return WEIR_OK;
    if (table->address == 0 || !segment || !(segment->p_flags & PF_R))
        return elf_imports_broken(m, "its relocations leave it");
    const char *at = memory_at(m, table->address);
    for (Elf64_Rela entry = {0}; status == WEIR_OK && count > 0; count--, at += bytes) {
        memcpy(&entry, at, bytes);
        if (!is_unwanted(m, t, ELF64_R_SYM(entry.r_info)))
            status = elf_imports_tell(m, entry.r_offset, entry.r_info, entry.r_addend, t->fn, t->user);
    }
    return status;
}

/* Relocations that may name a symbol: a large library has three times as many that name none, and linkers put them first. */
static wi_elf_table with_symbols(const wi_elf_module *m)
{
    uint64_t count = m->rela.bytes / sizeof(Elf64_Rela);
    uint64_t bytes = (m->rela_relative < count ? m->rela_relative : count) * sizeof(Elf64_Rela);
    return m->rela.address ? (wi_elf_table){m->rela.address + bytes, m->rela.bytes - bytes} : m->rela;
}

weir_status wi_elf_each_named(const wi_elf_module *m, bool (*wants)(const char *name, void *user), wi_elf_import_fn fn,
                              void *user)
{
    telling t = {.wants = wants, .fn = fn, .user = user};
    const wi_elf_table rela = with_symbols(m);
    weir_status status = each_of(m, &m->plt, m->plt_has_addends, &t);
    if (status == WEIR_OK)
        status = each_of(m, &rela, true, &t);
    if (status == WEIR_OK)
        status = each_of(m, &m->rel, false, &t);
    return status;
}

weir_status wi_elf_each_import(const wi_elf_module *m, wi_elf_import_fn fn, void *user)
{
    return wi_elf_each_named(m, NULL, fn, user);
}

/* Asking ----------------------------------------------------------------------------------------------------------- */

bool wi_elf_defines(const wi_elf_module *m, const char *name, bool *indirect)
{
    Elf64_Sym symbol;
    *indirect = false;
    for (uint64_t i = 1; i < m->symbol_count && copy_symbol(m, i, &symbol); i++) {
        const char *text = symbol.st_shndx != SHN_UNDEF ? elf_imports_text_at(m, symbol.st_name) : NULL;
        if (text && strcmp(text, name) == 0) {
            *indirect = ELF64_ST_TYPE(symbol.st_info) == STT_GNU_IFUNC;
            return true;
        }
    }
    return false;
}

bool wi_elf_contains(const wi_elf_module *m, uintptr_t address)
{
    return address >= m->image.bias && segment_of(m, address - m->image.bias, 1);
}

bool wi_elf_is_sealed(const wi_elf_module *m, uintptr_t address, size_t page)
{
    /* As the dynamic linker does it: both ends are rounded down. */
    uintptr_t first = (m->image.bias + (uintptr_t)m->read_only.address) & ~(uintptr_t)(page - 1);
    uintptr_t end = (m->image.bias + (uintptr_t)(m->read_only.address + m->read_only.bytes)) & ~(uintptr_t)(page - 1);
    return m->read_only.bytes > 0 && address >= first && address < end;
}
