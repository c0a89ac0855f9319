/* A plugin of a later version of the C API, in the form that all versions keep at the start. It
 * must not be called. */
#include <stdint.h>
#include <stdlib.h>

typedef struct newer_plugin {
    char magic[8];
    uint32_t version;
    uint32_t size_bytes;
    void (*create)(void);
} newer_plugin;

extern const newer_plugin frostline_plugin;

__attribute__((visibility("default"))) const newer_plugin frostline_plugin = {
    .magic = "frostpl", .version = 77, .size_bytes = sizeof(newer_plugin), .create = abort};
