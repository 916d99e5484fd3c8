/* What the modules import: two functions with a version, and one that nobody but the test knows. */
#define API __attribute__((visibility("default")))

API int imported_one(int x);
API int imported_two(int x);

int imported_one(int x)
{
    return x + 1;
}

int imported_two(int x)
{
    return 2 * x;
}
