/* Loaded before BLAST's own libraries: notes each hit of the preliminary search: query, subject, score.
 * Structures as in blast_hits.h of the NCBI C++ Toolkit, as far as they are read. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct { int16_t frame; int32_t offset, end, gapped_start; } Segment;
typedef struct { int32_t score, identical; double bits, evalue; Segment query, subject; int32_t context; } Hsp;
typedef struct { int32_t oid, query; Hsp **hsps; int32_t n_hsps; } HspList;

int BlastHSPStreamWrite(void *stream, HspList **list) {
    static int (*next)(void *, HspList **);
    static FILE *notes;
    if (!next) {
        next = dlsym(RTLD_NEXT, "BlastHSPStreamWrite");
        notes = fopen(getenv("PRELIMINARY_HITS"), "a");
    }
    if (*list) {
        for (int32_t k = 0; k < (*list)->n_hsps; k++)
            fprintf(notes, "%d %d %d\n", (*list)->hsps[k]->context, (*list)->oid, (*list)->hsps[k]->score);
        fflush(notes);
    }
    return next(stream, list);
}
