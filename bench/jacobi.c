/* Jacobi's iteration for the heat equation on a ring of ranks: what a tracer of MPI sees of a solver. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    int rank, size, n = 2000, steps = argc > 1 ? atoi(argv[1]) : 2000;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    double *now = calloc(n + 2, sizeof *now), *then = calloc(n + 2, sizeof *then);
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    if (!rank) now[1] = 1;
    for (int step = 0; step < steps; step++) {
        MPI_Request requests[4];
        double change = 0, most;
        MPI_Irecv(&now[0], 1, MPI_DOUBLE, left, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(&now[n + 1], 1, MPI_DOUBLE, right, 2, MPI_COMM_WORLD, &requests[1]);
        MPI_Isend(&now[n], 1, MPI_DOUBLE, right, 1, MPI_COMM_WORLD, &requests[2]);
        MPI_Isend(&now[1], 1, MPI_DOUBLE, left, 2, MPI_COMM_WORLD, &requests[3]);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        for (int k = 1; k <= n; k++) {
            then[k] = (now[k - 1] + now[k] + now[k + 1]) / 3;
            change = fmax(change, fabs(then[k] - now[k]));
        }
        double *swap = now; now = then; then = swap;
        if (step % 10 == 9) MPI_Allreduce(&change, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
