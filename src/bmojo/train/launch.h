#pragma once

#include <functional>
#include <optional>
#include <string>

#include "bmojo/base/error.h"

namespace bmojo::train {

// Where a process stands among the workers of a run, and where they find each other.
struct Place {
  int rank = 0, count = 1;
  std::string store;             // "file:PATH" on one machine, or "HOST:PORT"
  bool store_is_served = false;  // torchrun answers at HOST:PORT already; else worker 0 will
};

// The place given by run_workers(), else by torchrun (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT);
// nothing where this process was started alone.
std::optional<Place> place_from_environment();

// Another worker cannot be reached any more: it has ended, or its machine has.
struct LostWorker : base::RunError {
  using RunError::RunError;
};

// Starts this program `count` times with the same words, each copy with a place of its own and with
// `threads` threads unless its words say otherwise, and waits for all of them. Worker 0 has this
// process's stdout and stderr; of the others only what ended them is shown. SIGINT, SIGTERM and
// SIGHUP are passed on; the second of a kind kills them all. When a worker fails, the others are
// over within 10 s, and one line says which it was. Returns the exit code of the run.
//
// Call it before torch has started a thread: it forks.
int run_workers(int count, int threads, int argc, char** argv);

// Runs the work of one worker. A copy made by run_workers() that loses another one ends here, with
// nothing said: the process that started it knows which one was lost, and says so.
void as_worker(const std::function<void()>& work);

}  // namespace bmojo::train
