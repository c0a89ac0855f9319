#include "device/device.h"

#include <stdio.h>
#include <string.h>

/* "model name : AMD EPYC" gives "AMD EPYC"; the key is padded with tabs. */
static bool value_of(char *line, const char *key, char *text, size_t size_bytes)
{
    char *colon = strchr(line, ':');
    if (colon == NULL || strncmp(line, key, strlen(key)) != 0) {
        return false;
    }
    char *value = colon + 1 + strspn(colon + 1, " \t");
    value[strcspn(value, "\n")] = '\0';
    snprintf(text, size_bytes, "%s", value);
    return value[0] != '\0';
}

const char *fl_device_cpu_name(char *text, size_t size_bytes)
{
    char line[512];
    bool found = false;
    FILE *file = fopen("/proc/cpuinfo", "re");
    snprintf(text, size_bytes, "unknown");
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
        found = value_of(line, "model name", text, size_bytes);
    }
    if (file != NULL) {
        fclose(file);
    }
    return text;
}
