#include "launcher/pages/completion.h"

#include <string.h>

fl_completes fl_completion_kind(const char *operand)
{
    static const struct {
        const char *word;
        fl_completes kind;
    } kinds[] = {
        {"RUN", FL_COMPLETES_RUN},          {"MODEL", FL_COMPLETES_RUN},
        {"TRACE", FL_COMPLETES_RUN},        {"JOB.yaml", FL_COMPLETES_FILE},
        {"FILE", FL_COMPLETES_FILE},        {"PATH", FL_COMPLETES_FILE},
        {"DIR", FL_COMPLETES_FOLDER},       {"FIELD", FL_COMPLETES_FIELD},
        {"PATH=VALUE", FL_COMPLETES_FIELD}, {"COMMAND", FL_COMPLETES_COMMAND},
    };
    if (operand == NULL) {
        return FL_COMPLETES_NOTHING;
    }
    if (strchr(operand, '|') != NULL) {
        return FL_COMPLETES_WORD;
    }
    operand += operand[0] == '[';
    size_t n = strcspn(operand, " ]");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strlen(kinds[i].word) == n && strncmp(operand, kinds[i].word, n) == 0) {
            return kinds[i].kind;
        }
    }
    return FL_COMPLETES_NOTHING;
}

void fl_completion_put_words(FILE *out, const char *words)
{
    for (; *words != '\0'; words++) {
        fputc(*words == '|' ? ' ' : *words, out);
    }
}
