/* A module that reaches what it imports in each way: calls (through the PLT, or without one), by its address, and by
 * tables that were initialised with it. The tests build it several times over. What MODULE_… asks for spoils it. */
#define API __attribute__((visibility("default")))

#if defined(MODULE_DEFINES)
API int imported_one(int x);
int imported_one(int x)
{
    return x + 7;
}
#elif defined(MODULE_IFUNC)
static int indirectly(int x)
{
    return x + 7;
}
__attribute__((used)) static int (*choose(void))(int)
{
    return indirectly;
}
API int imported_one(int x) __attribute__((ifunc("choose")));
#else
extern int imported_one(int x);
#endif
extern int imported_two(int x);
extern int nobodys(int x) __attribute__((weak));

#ifdef MODULE_TEXT_RELOCATION
__asm__(".text\n .balign 8\n .quad imported_one\n");
#endif
#ifdef MODULE_ADDEND
extern const char inside_of[] __asm__("imported_one");
API const char *const module_inside;
const char *const module_inside = inside_of + 8;
#endif

typedef int function(int x);

/* Sealed after the start where the module has RELRO; and not. */
static function *const sealed_table[] = {imported_one, imported_two};
static function *open_table[] = {imported_two, imported_one};
#ifdef MODULE_MANY
#define TEN                                                                                                            \
    imported_two, imported_two, imported_two, imported_two, imported_two, imported_two, imported_two, imported_two,    \
        imported_two, imported_two
static function *many_of_two[] = {TEN, TEN, TEN, TEN, TEN, TEN, TEN, TEN};
API function **module_many(void);
function **module_many(void)
{
    return many_of_two;
}
#endif

API int module_call(int x);
API int module_call_two(int x);
API function *module_address(void);
API function *const *module_sealed(void);
API function **module_open(void);
API int module_has_nobodys(void);

int module_call(int x)
{
    return imported_one(x);
}

int module_call_two(int x)
{
    return imported_two(x);
}

function *module_address(void)
{
    return imported_one;
}

function *const *module_sealed(void)
{
    return sealed_table;
}

function **module_open(void)
{
    return open_table;
}

int module_has_nobodys(void)
{
    return nobodys ? nobodys(0) : 0;
}
