/* The decoding of a module, on images that are made here: each relocation of both machines, forms that real linkers
 * make of few modules, and what must be refused. Nothing here runs, so that a module of any machine will do. */
#include "core/core.h"
#include "interpose/elf_imports.h"

#include "test_places.h"

#include <unistd.h>

/* An image: tables in a segment that is read, slots in one that is written. */
enum {
    TEXTS = 0x100,
    SYMBOLS = 0x200,
    HASH = 0x400,
    RELA = 0x500,
    PLT = 0x600,
    REL = 0x700,
    DYNAMIC = 0x800,
    READ_BYTES = 0xa00,
    SLOTS = 0x2000,
    SLOT_BYTES = 0x100,
    IMAGE_BYTES = SLOTS + SLOT_BYTES,
    FILE_BIAS = 0x10000, /* what addresses of the file begin with */
};

/* The symbols; the texts have their names. */
enum { NONE, CALLED, ADDRESSED, LISTED, OWN, INDIRECT, SYMBOL_COUNT };
static const char *const symbol_names[SYMBOL_COUNT] = {"", "called", "addressed", "listed", "own", "indirect"};

typedef struct image {
    unsigned char *bytes; /* so long as it says, so that whoever leaves it is seen */
    Elf64_Phdr segments[8];
    size_t segment_count;
    Elf64_Dyn dynamic[32];
    size_t dynamic_count;
    uint64_t rela, plt, rel; /* bytes so far */
    uint64_t name_at[SYMBOL_COUNT];
} image;

static void put(image *i, size_t at, const void *what, size_t bytes)
{
    assert_true(at + bytes <= IMAGE_BYTES);
    memcpy(i->bytes + at, what, bytes);
}

static void tag(image *i, int64_t name, uint64_t value)
{
    i->dynamic[i->dynamic_count++] = (Elf64_Dyn){.d_tag = name, .d_un.d_val = value};
    put(i, DYNAMIC, i->dynamic, i->dynamic_count * sizeof *i->dynamic);
}

/* Changes a tag, or takes it away. */
static void change_tag(image *i, int64_t name, int64_t to, uint64_t value)
{
    for (size_t at = 0; at < i->dynamic_count; at++)
        if (i->dynamic[at].d_tag == name) {
            i->dynamic[at] = (Elf64_Dyn){.d_tag = to, .d_un.d_val = value};
            put(i, DYNAMIC, i->dynamic, i->dynamic_count * sizeof *i->dynamic);
            return;
        }
    fail();
}

static void put_texts(image *i)
{
    size_t at = 1;
    for (size_t s = 1; s < SYMBOL_COUNT; s++) {
        i->name_at[s] = at;
        put(i, TEXTS + at, symbol_names[s], strlen(symbol_names[s]) + 1);
        at += strlen(symbol_names[s]) + 1;
    }
    put(i, TEXTS + at, "libone.so.1", 12);
    tag(i, DT_NEEDED, at);
    tag(i, DT_STRTAB, FILE_BIAS + TEXTS);
    tag(i, DT_STRSZ, at + 12);
}

static void put_symbols(image *i)
{
    for (size_t s = 1; s < SYMBOL_COUNT; s++) {
        Elf64_Sym symbol = {.st_name = (Elf64_Word)i->name_at[s],
                            .st_info = ELF64_ST_INFO(STB_GLOBAL, s == INDIRECT ? STT_GNU_IFUNC : STT_FUNC),
                            .st_shndx = s == OWN ? 7 : SHN_UNDEF};
        put(i, SYMBOLS + s * sizeof symbol, &symbol, sizeof symbol);
    }
    tag(i, DT_SYMTAB, FILE_BIAS + SYMBOLS);
    tag(i, DT_SYMENT, sizeof(Elf64_Sym));
    const uint32_t hash[] = {1, SYMBOL_COUNT, OWN};
    put(i, HASH, hash, sizeof hash);
    tag(i, DT_HASH, FILE_BIAS + HASH);
}

static image make(uint16_t machine)
{
    image i = {.bytes = calloc(1, IMAGE_BYTES)};
    assert_non_null(i.bytes);
    Elf64_Ehdr header = {.e_machine = machine, .e_type = ET_DYN};
    memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    put(&i, 0, &header, sizeof header);
    i.segments[0] = (Elf64_Phdr){.p_type = PT_LOAD, .p_flags = PF_R, .p_vaddr = FILE_BIAS, .p_memsz = READ_BYTES};
    i.segments[1] = (Elf64_Phdr){.p_type = PT_LOAD,
                                 .p_flags = PF_R | PF_W,
                                 .p_offset = SLOTS,
                                 .p_vaddr = FILE_BIAS + SLOTS,
                                 .p_memsz = SLOT_BYTES};
    i.segments[2] = (Elf64_Phdr){.p_type = PT_DYNAMIC, .p_vaddr = FILE_BIAS + DYNAMIC, .p_memsz = 0x200};
    i.segments[3] = (Elf64_Phdr){.p_type = PT_GNU_RELRO, .p_vaddr = FILE_BIAS + SLOTS, .p_memsz = 0x80};
    i.segment_count = 4;
    put_texts(&i);
    put_symbols(&i);
    tag(&i, DT_PLTREL, DT_RELA);
    return i;
}

static void drop(image *i)
{
    free(i->bytes);
}

static uintptr_t bias_of(const image *i)
{
    return (uintptr_t)i->bytes - FILE_BIAS;
}

static void relocate(image *i, uint64_t *bytes, size_t table, uint32_t symbol, uint32_t type, uint64_t slot,
                     int64_t addend)
{
    Elf64_Rela entry = {.r_offset = FILE_BIAS + slot, .r_info = ELF64_R_INFO(symbol, type), .r_addend = addend};
    size_t size = table == REL ? sizeof(Elf64_Rel) : sizeof entry;
    put(i, table + *bytes, &entry, size);
    *bytes += size;
}

static void end_tables(image *i)
{
    const struct {
        int64_t address, size;
        uint64_t table, bytes;
    } tables[] = {
        {DT_RELA, DT_RELASZ, RELA, i->rela}, {DT_JMPREL, DT_PLTRELSZ, PLT, i->plt}, {DT_REL, DT_RELSZ, REL, i->rel}};
    for (size_t t = 0; t < 3; t++)
        if (tables[t].bytes > 0) {
            tag(i, tables[t].address, FILE_BIAS + tables[t].table);
            tag(i, tables[t].size, tables[t].bytes);
        }
}

/* What was told of an image. */
typedef struct told {
    wi_elf_import imports[16];
    size_t count, most;
} told;

static weir_status note(const wi_elf_import *import, void *user)
{
    told *t = user;
    if (t->count < 16)
        t->imports[t->count] = *import;
    t->count++;
    return t->count == t->most ? WEIR_ERR_CANCELLED : WEIR_OK;
}

static weir_status open_image(const image *i, wi_elf_module *m)
{
    const wi_elf_image loaded = {"image.so", bias_of(i), i->segments, i->segment_count};
    return wi_elf_open(&loaded, m);
}

static told read_imports(const image *i, weir_status wanted)
{
    told t = {.count = 0};
    wi_elf_module m;
    ok(open_image(i, &m));
    fails(wanted, wi_elf_each_import(&m, note, &t));
    return t;
}

static void check_import(const image *i, const wi_elf_import *import, const char *name, wi_elf_use use, uint64_t slot)
{
    assert_string_equal(import->name, name);
    assert_int_equal(import->use, use);
    assert_int_equal(import->slot, bias_of(i) + FILE_BIAS + slot);
    assert_false(import->has_addend);
    assert_false(import->defined);
    assert_true(import->writable);
    assert_true(import->aligned);
}

/* Each machine's numbers for the same things. */
typedef struct machine {
    uint16_t number;
    uint32_t jump, glob, address, relative, copy;
} machine;
static const machine machines[] = {
    {EM_X86_64, R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT, R_X86_64_64, R_X86_64_RELATIVE, R_X86_64_COPY},
    {EM_AARCH64, R_AARCH64_JUMP_SLOT, R_AARCH64_GLOB_DAT, R_AARCH64_ABS64, R_AARCH64_RELATIVE, R_AARCH64_COPY}};

static image make_full(const machine *m)
{
    image i = make(m->number);
    relocate(&i, &i.rela, RELA, NONE, m->relative, SLOTS, 0x1234);
    relocate(&i, &i.rela, RELA, ADDRESSED, m->glob, SLOTS + 8, 0);
    relocate(&i, &i.rela, RELA, LISTED, m->address, SLOTS + 0x90, 0);
    relocate(&i, &i.plt, PLT, CALLED, m->jump, SLOTS + 16, 0x77); /* -z mark-plt writes an addend that is none */
    relocate(&i, &i.rel, REL, CALLED, m->glob, SLOTS + 24, 0);
    end_tables(&i);
    return i;
}

static void each_relocation_of_both_machines_is_understood(void **state)
{
    (void)state;
    for (size_t n = 0; n < 2; n++) {
        image i = make_full(&machines[n]);
        told t = read_imports(&i, WEIR_OK);
        assert_int_equal(t.count, 4);
        check_import(&i, &t.imports[0], "called", WI_ELF_JUMP_SLOT, SLOTS + 16);
        check_import(&i, &t.imports[1], "addressed", WI_ELF_GLOB_DAT, SLOTS + 8);
        check_import(&i, &t.imports[2], "listed", WI_ELF_ADDRESS, SLOTS + 0x90);
        check_import(&i, &t.imports[3], "called", WI_ELF_GLOB_DAT, SLOTS + 24);
        drop(&i);
    }
}

static void jump_slots_may_come_without_addends(void **state)
{
    (void)state;
    image i = make(EM_X86_64);
    Elf64_Rel entries[] = {{FILE_BIAS + SLOTS, ELF64_R_INFO(CALLED, R_X86_64_JUMP_SLOT)},
                           {FILE_BIAS + SLOTS + 8, ELF64_R_INFO(LISTED, R_X86_64_JUMP_SLOT)}};
    put(&i, PLT, entries, sizeof entries);
    i.plt = sizeof entries;
    end_tables(&i);
    change_tag(&i, DT_PLTREL, DT_PLTREL, DT_REL);
    told t = read_imports(&i, WEIR_OK);
    assert_int_equal(t.count, 2);
    check_import(&i, &t.imports[1], "listed", WI_ELF_JUMP_SLOT, SLOTS + 8);
    drop(&i);
}

static void addresses_may_have_been_relocated_by_the_dynamic_linker(void **state)
{
    (void)state;
    image i = make_full(&machines[0]);
    for (size_t at = 0; at < i.dynamic_count; at++)
        switch (i.dynamic[at].d_tag) {
        case DT_STRTAB:
        case DT_SYMTAB:
        case DT_RELA:
        case DT_REL:
        case DT_JMPREL:
        case DT_HASH:
            i.dynamic[at].d_un.d_val += bias_of(&i);
            break;
        default:
            break;
        }
    put(&i, DYNAMIC, i.dynamic, i.dynamic_count * sizeof *i.dynamic);
    told t = read_imports(&i, WEIR_OK);
    assert_int_equal(t.count, 4);
    check_import(&i, &t.imports[0], "called", WI_ELF_JUMP_SLOT, SLOTS + 16);
    drop(&i);
}

static void the_reader_stops_where_it_is_told_to(void **state)
{
    (void)state;
    image i = make_full(&machines[1]);
    told t = {.most = 2};
    wi_elf_module m;
    ok(open_image(&i, &m));
    assert_int_equal(wi_elf_each_import(&m, note, &t), WEIR_ERR_CANCELLED);
    assert_int_equal(t.count, 2);
    drop(&i);
}

/* Names that were asked for, in their order, and what was told of those that were wanted. */
typedef struct chosen {
    told told; /* first: `note` has its address */
    char asked[64];
} chosen;

static bool wants_addressed(const char *name, void *user)
{
    chosen *c = user;
    snprintf(c->asked + strlen(c->asked), sizeof c->asked - strlen(c->asked), "%.2s ", name);
    return strcmp(name, "addressed") == 0;
}

/* A name is asked for once where several relocations in a row have it; what names no symbol does not count. */
static void those_of_wanted_names_are_told(void **state)
{
    (void)state;
    image i = make(EM_X86_64);
    static const uint32_t symbols[] = {0, CALLED, CALLED, 0, CALLED, ADDRESSED, 0, ADDRESSED, CALLED, 0};
    for (size_t k = 0; k < sizeof symbols / sizeof *symbols; k++)
        relocate(&i, &i.rela, RELA, symbols[k], symbols[k] ? R_X86_64_64 : R_X86_64_RELATIVE, SLOTS + 8 * k, 0);
    end_tables(&i);
    chosen c = {.asked = ""};
    wi_elf_module m;
    ok(open_image(&i, &m));
    ok(wi_elf_each_named(&m, wants_addressed, note, &c));
    assert_int_equal(c.told.count, 2);
    check_import(&i, &c.told.imports[0], "addressed", WI_ELF_ADDRESS, SLOTS + 40);
    check_import(&i, &c.told.imports[1], "addressed", WI_ELF_ADDRESS, SLOTS + 56);
    assert_string_equal(c.asked, "ca ad ad ");
    drop(&i);
}

/* The tag may count more than there are. */
static void those_that_name_no_symbol_are_passed_over(void **state)
{
    (void)state;
    static const struct {
        uint64_t said;
        size_t told;
    } cases[] = {{0, 2}, {2, 2}, {3, 1}, {4, 0}, {5, 0}, {UINT64_MAX, 0}};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        image i = make(EM_X86_64);
        for (uint64_t k = 0; k < 4; k++)
            relocate(&i, &i.rela, RELA, k < 2 ? NONE : ADDRESSED, k < 2 ? R_X86_64_RELATIVE : R_X86_64_64,
                     SLOTS + 8 * k, 0);
        tag(&i, DT_RELACOUNT, cases[n].said);
        end_tables(&i);
        told t = read_imports(&i, WEIR_OK);
        assert_int_equal(t.count, cases[n].told);
        if (t.count > 0)
            check_import(&i, &t.imports[t.count - 1], "addressed", WI_ELF_ADDRESS, SLOTS + 24);
        drop(&i);
    }
}

static void what_is_no_plain_slot_is_told_apart(void **state)
{
    (void)state;
    image i = make(EM_X86_64);
    relocate(&i, &i.rela, RELA, ADDRESSED, R_X86_64_64, SLOTS, 8);
    relocate(&i, &i.rela, RELA, ADDRESSED, R_X86_64_PC32, SLOTS, 0);
    relocate(&i, &i.rela, RELA, ADDRESSED, R_X86_64_COPY, SLOTS, 0);
    relocate(&i, &i.rela, RELA, OWN, R_X86_64_GLOB_DAT, SLOTS, 0);
    relocate(&i, &i.rela, RELA, INDIRECT, R_X86_64_GLOB_DAT, SLOTS, 0);
    relocate(&i, &i.rela, RELA, LISTED, R_X86_64_GLOB_DAT, SLOTS + 4, 0);
    relocate(&i, &i.rela, RELA, LISTED, R_X86_64_64, TEXTS, 0);
    relocate(&i, &i.rela, RELA, ADDRESSED, R_X86_64_COPY, SLOTS + SLOT_BYTES - 4,
             0); /* an int, where the segment ends */
    end_tables(&i);
    told t = read_imports(&i, WEIR_OK);
    assert_int_equal(t.count, 8);
    assert_true(t.imports[0].has_addend);
    assert_int_equal(t.imports[1].use, WI_ELF_OTHER);
    assert_int_equal(t.imports[2].use, WI_ELF_OTHER);
    assert_true(t.imports[3].defined);
    assert_true(t.imports[4].indirect);
    assert_false(t.imports[5].aligned);
    assert_false(t.imports[6].writable);
    assert_int_equal(t.imports[7].use, WI_ELF_OTHER);
    drop(&i);
}

static void numbers_of_one_machine_mean_nothing_on_the_other(void **state)
{
    (void)state;
    image i = make(EM_AARCH64);
    relocate(&i, &i.rela, RELA, CALLED, R_X86_64_JUMP_SLOT, SLOTS, 0);
    end_tables(&i);
    assert_int_equal(read_imports(&i, WEIR_OK).imports[0].use, WI_ELF_OTHER);
    drop(&i);
}

/* Files as linkers make them --------------------------------------------------------------------------------------- */

/* A file as the dynamic linker would lay it out, unrelocated; false: there is no such file. */
static bool lay_out(const char *path, image *out)
{
    static unsigned char file[1 << 20];
    FILE *stream = fopen(path, "rbe");
    if (!stream)
        return false;
    size_t bytes = fread(file, 1, sizeof file, stream), end = 0;
    fclose(stream);
    Elf64_Ehdr header;
    Elf64_Phdr segment;
    assert_true(bytes > sizeof header && bytes < sizeof file);
    memcpy(&header, file, sizeof header);
    *out = (image){.bytes = NULL};
    for (size_t i = 0; i < header.e_phnum; i++) {
        memcpy(&segment, file + header.e_phoff + i * sizeof segment, sizeof segment);
        bool wanted = segment.p_type == PT_LOAD || segment.p_type == PT_DYNAMIC || segment.p_type == PT_GNU_RELRO;
        if (wanted && out->segment_count < 8)
            out->segments[out->segment_count++] = segment;
        if (segment.p_type == PT_LOAD && segment.p_vaddr + segment.p_memsz > end)
            end = segment.p_vaddr + segment.p_memsz;
    }
    out->bytes = calloc(1, end);
    assert_non_null(out->bytes);
    for (size_t i = 0; i < out->segment_count; i++)
        if (out->segments[i].p_type == PT_LOAD)
            memcpy(out->bytes + out->segments[i].p_vaddr, file + out->segments[i].p_offset, out->segments[i].p_filesz);
    return true;
}

typedef struct uses {
    unsigned one[4], two[4]; /* by wi_elf_use */
} uses;

static weir_status count_uses(const wi_elf_import *import, void *user)
{
    uses *u = user;
    bool one = strcmp(import->name, "imported_one") == 0, two = strcmp(import->name, "imported_two") == 0;
    if (!one && !two)
        return WEIR_OK;
    (one ? u->one : u->two)[import->use]++;
    assert_true(import->writable && import->aligned && !import->defined && !import->has_addend);
    return WEIR_OK;
}

static void check_file(const char *name, uint16_t machine_number, bool has_plt)
{
    char path[512];
    wi_elf_module m;
    bool indirect;
    image i;
    snprintf(path, sizeof path, "%s/tests/interpose/%s.so", built_folder, name);
    if (machine_number != wi_elf_own_machine() && access(path, R_OK) != 0)
        skip(); /* no compiler for that machine was found */
    assert_true(lay_out(path, &i));
    const wi_elf_image loaded = {name, (uintptr_t)i.bytes, i.segments, i.segment_count};
    uses u = {.one = {0}};
    ok(wi_elf_open(&loaded, &m));
    assert_int_equal(m.machine, machine_number);
    ok(wi_elf_each_import(&m, count_uses, &u));
    assert_int_equal(u.one[WI_ELF_ADDRESS], 2);
    assert_int_equal(u.two[WI_ELF_ADDRESS], 2);
    assert_int_equal(u.two[WI_ELF_JUMP_SLOT], has_plt);
    assert_int_equal(u.two[WI_ELF_GLOB_DAT], !has_plt);
    assert_int_equal(u.one[WI_ELF_GLOB_DAT], 1);
    assert_int_equal(u.one[WI_ELF_OTHER] + u.two[WI_ELF_OTHER], 0);
    assert_true(wi_elf_defines(&m, "module_call", &indirect));
    assert_false(m.needs_text_writes);
    free(i.bytes);
}

static void files_of_this_machine_are_understood(void **state)
{
    (void)state;
    check_file("module-now", wi_elf_own_machine(), true);
    check_file("module-lazy", wi_elf_own_machine(), true);
    check_file("module-no-plt", wi_elf_own_machine(), false);
}

/* Where there is a compiler for it. */
static void a_file_for_arm64_is_understood(void **state)
{
    (void)state;
    check_file("module-arm64", EM_AARCH64, true);
}

/* Symbols ---------------------------------------------------------------------------------------------------------- */

static void what_a_module_defines_is_known(void **state)
{
    bool indirect;
    (void)state;
    image i = make_full(&machines[0]);
    wi_elf_module m;
    ok(open_image(&i, &m));
    assert_int_equal(m.symbol_count, SYMBOL_COUNT);
    assert_true(wi_elf_defines(&m, "own", &indirect));
    assert_false(indirect);
    indirect = true;
    assert_false(wi_elf_defines(&m, "called", &indirect));
    assert_false(indirect);
    assert_false(wi_elf_defines(&m, "nothing", &indirect));
    assert_true(wi_elf_contains(&m, (uintptr_t)i.bytes + SLOTS));
    assert_false(wi_elf_contains(&m, (uintptr_t)i.bytes + READ_BYTES));
    assert_false(wi_elf_contains(&m, (uintptr_t)i.bytes - 1));
    drop(&i);
}

/* A gnu hash with one bucket, from the symbol `first` on, whose chain ends with the last. */
static void use_gnu_hash(image *i, uint32_t first, uint32_t bucket)
{
    uint32_t table[16] = {1, first, 1, 0, 0, 0, bucket};
    for (uint32_t s = first; s < SYMBOL_COUNT; s++)
        table[7 + s - first] = s + 1 == SYMBOL_COUNT;
    put(i, HASH, table, sizeof table);
    change_tag(i, DT_HASH, DT_GNU_HASH, FILE_BIAS + HASH);
}

static void symbols_are_counted_by_the_chains_of_a_gnu_hash(void **state)
{
    bool indirect;
    (void)state;
    image i = make_full(&machines[0]);
    use_gnu_hash(&i, OWN, OWN);
    wi_elf_module m;
    ok(open_image(&i, &m));
    assert_int_equal(m.symbol_count, SYMBOL_COUNT);
    assert_true(wi_elf_defines(&m, "own", &indirect));
    drop(&i);
}

/* Linkers write an empty one for a module that defines nothing, however much it imports. */
static void imports_are_found_behind_the_end_of_an_empty_gnu_hash(void **state)
{
    bool indirect;
    (void)state;
    image i = make_full(&machines[0]);
    use_gnu_hash(&i, 1, 0);
    wi_elf_module m;
    ok(open_image(&i, &m));
    assert_int_equal(m.symbol_count, 1);
    assert_false(wi_elf_defines(&m, "own", &indirect));
    assert_int_equal(read_imports(&i, WEIR_OK).count, 4);
    drop(&i);
}

/* Not even the one without a name. */
static void a_module_without_symbols_is_read(void **state)
{
    const uint32_t hash[] = {1, 0, 0};
    bool indirect;
    (void)state;
    image i = make(EM_X86_64);
    put(&i, HASH, hash, sizeof hash);
    wi_elf_module m;
    ok(open_image(&i, &m));
    assert_int_equal(m.symbol_count, 0);
    assert_false(wi_elf_defines(&m, "own", &indirect));
    assert_int_equal(read_imports(&i, WEIR_OK).count, 0);
    drop(&i);
}

/* It has no end of its own where the segment ends with its last entry. */
static void what_lies_behind_the_dynamic_section_is_none_of_it(void **state)
{
    (void)state;
    image i = make_full(&machines[0]);
    i.segments[2].p_memsz = i.dynamic_count * sizeof *i.dynamic;
    tag(&i, DT_TEXTREL, 0);
    wi_elf_module m;
    ok(open_image(&i, &m));
    assert_false(m.needs_text_writes);
    assert_int_equal(read_imports(&i, WEIR_OK).count, 4);
    i.segments[2].p_memsz += sizeof *i.dynamic;
    ok(open_image(&i, &m));
    assert_true(m.needs_text_writes);
    drop(&i);
}

static void a_sealed_page_ends_where_the_dynamic_linker_ends_it(void **state)
{
    enum { PAGE = 64 };
    (void)state;
    image i = make(EM_X86_64);
    i.segments[3].p_vaddr = FILE_BIAS + SLOTS + 8 - (uintptr_t)i.bytes % PAGE;
    i.segments[3].p_memsz = 3 * PAGE - 16;
    wi_elf_module m;
    ok(open_image(&i, &m));
    uintptr_t start = bias_of(&i) + (uintptr_t)i.segments[3].p_vaddr - 8;
    assert_false(wi_elf_is_sealed(&m, start - 1, PAGE));
    assert_true(wi_elf_is_sealed(&m, start, PAGE));
    assert_true(wi_elf_is_sealed(&m, start + 2 * PAGE - 1, PAGE));
    assert_false(wi_elf_is_sealed(&m, start + 2 * PAGE, PAGE)); /* whose end is in the page is not sealed */
    i.segment_count = 3;
    ok(open_image(&i, &m));
    assert_false(wi_elf_is_sealed(&m, start, PAGE));
    drop(&i);
}

/* Refusals --------------------------------------------------------------------------------------------------------- */

static void refused(image i, weir_status status, const char *why)
{
    wi_elf_module m;
    fails(status, open_image(&i, &m));
    detail_names("image.so");
    detail_names(why);
    drop(&i);
}

static void modules_of_other_machines_are_refused(void **state)
{
    (void)state;
    refused(make(EM_RISCV), WEIR_ERR_UNSUPPORTED, "machine 243");
    image narrow = make(EM_X86_64);
    narrow.bytes[EI_CLASS] = ELFCLASS32;
    refused(narrow, WEIR_ERR_UNSUPPORTED, "64 bits");
    image big = make(EM_X86_64);
    big.bytes[EI_DATA] = ELFDATA2MSB;
    refused(big, WEIR_ERR_UNSUPPORTED, "little endian");
    image none = make(EM_X86_64);
    none.bytes[1] = 'e';
    refused(none, WEIR_ERR_UNSUPPORTED, "ELF header");
    image headless = make(EM_X86_64);
    headless.segments[0].p_offset = 0x1000;
    refused(headless, WEIR_ERR_UNSUPPORTED, "ELF header");
}

static void a_module_that_is_linked_statically_is_refused(void **state)
{
    (void)state;
    image i = make(EM_X86_64);
    i.segment_count = 2;
    refused(i, WEIR_ERR_UNSUPPORTED, "statically");
}

static void text_relocations_and_packed_ones_are_known(void **state)
{
    static const struct {
        int64_t tag;
        uint64_t value;
        bool text, packed, direct;
    } known[] = {{DT_TEXTREL, 0, true, false, false},          {DT_FLAGS, DF_TEXTREL | DF_BIND_NOW, true, false, false},
                 {DT_FLAGS, DF_BIND_NOW, false, false, false}, {0x60000011, FILE_BIAS, false, true, false},
                 {0x6000000f, FILE_BIAS, false, true, false},  {0x70000000, FILE_BIAS, false, false, true}};
    (void)state;
    for (size_t n = 0; n < sizeof known / sizeof *known; n++) {
        image i = make(EM_X86_64);
        tag(&i, known[n].tag, known[n].value);
        wi_elf_module m;
        ok(open_image(&i, &m));
        assert_int_equal(m.needs_text_writes, known[n].text);
        assert_int_equal(m.unknown_packing, known[n].packed);
        assert_int_equal(m.plt_may_be_direct, known[n].direct);
        drop(&i);
    }
}

static void tables_that_leave_the_module_are_corrupt(void **state)
{
    static const int64_t tags[] = {DT_STRSZ, DT_RELASZ, DT_PLTRELSZ, DT_RELSZ, DT_HASH, DT_SYMTAB, DT_RELA, DT_JMPREL};
    (void)state;
    for (size_t n = 0; n < sizeof tags / sizeof *tags; n++) {
        image i = make_full(&machines[0]);
        change_tag(&i, tags[n], tags[n], FILE_BIAS + READ_BYTES + 0x1000);
        refused(i, WEIR_ERR_CORRUPT, "image.so");
    }
    image unhashed = make(EM_X86_64);
    change_tag(&unhashed, DT_HASH, DT_DEBUG, 0);
    refused(unhashed, WEIR_ERR_CORRUPT, "hashes");
    image endless = make(EM_X86_64);
    use_gnu_hash(&endless, OWN, OWN);
    const uint32_t zeros[256] = {0};
    put(&endless, HASH + 28, zeros, 4 * sizeof *zeros); /* a chain that goes on into what lies behind it */
    wi_elf_module m;
    (void)open_image(&endless, &m); /* may find an end there: it has to return */
    drop(&endless);
}

/* The sizes of entries may be said, and have to be those that are read. */
static void entries_of_other_sizes_are_refused(void **state)
{
    static const struct {
        int64_t tag;
        uint64_t size;
    } sizes[] = {{DT_SYMENT, sizeof(Elf64_Sym)}, {DT_RELAENT, sizeof(Elf64_Rela)}, {DT_RELENT, sizeof(Elf64_Rel)}};
    (void)state;
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        wi_elf_module m;
        image i = make_full(&machines[0]);
        if (n > 0)
            tag(&i, sizes[n].tag, sizes[n].size);
        ok(open_image(&i, &m));
        change_tag(&i, sizes[n].tag, sizes[n].tag, 0); /* as if it were not said */
        ok(open_image(&i, &m));
        change_tag(&i, sizes[n].tag, sizes[n].tag, sizes[n].size + 8);
        refused(i, WEIR_ERR_UNSUPPORTED, "usual size");
    }
    image i = make_full(&machines[0]);
    change_tag(&i, DT_PLTREL, DT_PLTREL, DT_NULL);
    refused(i, WEIR_ERR_UNSUPPORTED, "usual size");
}

static void relocations_that_leave_the_module_are_corrupt(void **state)
{
    (void)state;
    image symbol = make(EM_X86_64);
    relocate(&symbol, &symbol.rela, RELA, 5000000, R_X86_64_GLOB_DAT, SLOTS, 0);
    end_tables(&symbol);
    read_imports(&symbol, WEIR_ERR_CORRUPT);
    drop(&symbol);
    image slot = make(EM_X86_64);
    relocate(&slot, &slot.rela, RELA, CALLED, R_X86_64_GLOB_DAT, SLOTS + SLOT_BYTES - 4, 0);
    end_tables(&slot);
    read_imports(&slot, WEIR_ERR_CORRUPT);
    drop(&slot);
    image name = make_full(&machines[0]);
    Elf64_Sym far = {.st_name = 0x10000};
    put(&name, SYMBOLS + CALLED * sizeof far, &far, sizeof far);
    read_imports(&name, WEIR_ERR_CORRUPT);
    drop(&name);
    image open = make_full(&machines[0]);
    change_tag(&open, DT_STRSZ, DT_STRSZ, open.name_at[LISTED] + 3); /* cuts a name off */
    read_imports(&open, WEIR_ERR_CORRUPT);
    drop(&open);
}

static weir_status ignore(const wi_elf_import *import, void *user)
{
    (void)user;
    assert_true(strlen(import->name) < IMAGE_BYTES);
    return WEIR_OK;
}

/* Whatever a byte says, nothing outside of the image is read: AddressSanitizer sees it, as the image is no longer than
 * it says. */
static void no_byte_leads_out_of_the_module(void **state)
{
    static const unsigned char values[] = {0, 1, 0x7f, 0x80, 0xff};
    bool indirect;
    (void)state;
    for (unsigned gnu = 0; gnu < 2; gnu++) {
        image i = make_full(&machines[gnu]);
        if (gnu)
            use_gnu_hash(&i, OWN, OWN);
        for (size_t at = 0; at < READ_BYTES; at++)
            for (size_t v = 0; v < sizeof values; v++) {
                unsigned char before = i.bytes[at];
                wi_elf_module m;
                i.bytes[at] = values[v];
                weir_status status = open_image(&i, &m);
                if (status == WEIR_OK)
                    status = wi_elf_each_import(&m, ignore, NULL);
                assert_true(status == WEIR_OK || status == WEIR_ERR_CORRUPT || status == WEIR_ERR_UNSUPPORTED);
                if (status == WEIR_OK)
                    (void)wi_elf_defines(&m, "nothing", &indirect);
                i.bytes[at] = before;
            }
        drop(&i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_relocation_of_both_machines_is_understood),
        cmocka_unit_test(jump_slots_may_come_without_addends),
        cmocka_unit_test(addresses_may_have_been_relocated_by_the_dynamic_linker),
        cmocka_unit_test(the_reader_stops_where_it_is_told_to),
        cmocka_unit_test(those_of_wanted_names_are_told),
        cmocka_unit_test(those_that_name_no_symbol_are_passed_over),
        cmocka_unit_test(what_is_no_plain_slot_is_told_apart),
        cmocka_unit_test(numbers_of_one_machine_mean_nothing_on_the_other),
        cmocka_unit_test(files_of_this_machine_are_understood),
        cmocka_unit_test(a_file_for_arm64_is_understood),
        cmocka_unit_test(what_a_module_defines_is_known),
        cmocka_unit_test(symbols_are_counted_by_the_chains_of_a_gnu_hash),
        cmocka_unit_test(imports_are_found_behind_the_end_of_an_empty_gnu_hash),
        cmocka_unit_test(a_module_without_symbols_is_read),
        cmocka_unit_test(what_lies_behind_the_dynamic_section_is_none_of_it),
        cmocka_unit_test(a_sealed_page_ends_where_the_dynamic_linker_ends_it),
        cmocka_unit_test(modules_of_other_machines_are_refused),
        cmocka_unit_test(a_module_that_is_linked_statically_is_refused),
        cmocka_unit_test(text_relocations_and_packed_ones_are_known),
        cmocka_unit_test(tables_that_leave_the_module_are_corrupt),
        cmocka_unit_test(entries_of_other_sizes_are_refused),
        cmocka_unit_test(relocations_that_leave_the_module_are_corrupt),
        cmocka_unit_test(no_byte_leads_out_of_the_module),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
