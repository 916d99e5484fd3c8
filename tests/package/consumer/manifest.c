/* A program outside the tree that reads a manifest. */
#include <weir/manifest.h>
#include <weir/weir.h>

#include <stdio.h>
#include <string.h>

static int write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    return file && fputs(text, file) >= 0 && fclose(file) == 0;
}

int main(void)
{
    weir_manifest *manifest;
    if (!write_file("consumer-model.onnx", "\x08\x07") ||
        !write_file("consumer.json", "{\"model_file\": \"consumer-model.onnx\", \"hardware_requirements\": "
                                     "{\"min_vram\": \"2GiB\"}}"))
        return 1;
    if (weir_manifest_read("consumer.json", NULL, &manifest) != WEIR_OK) {
        fprintf(stderr, "%s\n", weir_detail());
        return 1;
    }
    int wrong = strcmp(manifest->framework, "onnx") != 0 || manifest->requirements.min_vram != (uint64_t)2 << 30;
    printf("%s wants %llu bytes\n", manifest->model_file, (unsigned long long)manifest->requirements.min_vram);
    weir_manifest_destroy(manifest);
    remove("consumer-model.onnx");
    remove("consumer.json");
    return wrong;
}
