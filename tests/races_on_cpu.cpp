// Finds races in shared memory of kernels that run on a CPU through cuda_on_cpu.h. The compiler is told to look for races
// (-fsanitize=thread), so it puts a call before every access to memory; the functions that it calls are here, in place of its own
// library, which knows threads of the system and no fibres.
//
// Two accesses to a word, one of them a write, race if no barrier stands between them. Every thread has a clock that a barrier
// moves on, and remembers of all others how far their clocks were when a barrier last ordered theirs before its own. An access is
// ordered before another if the other's thread knows its clock. Of a word are kept its last write, and the last read of each thread
// since. The order in which fibres happen to run does not matter, and each pair of instructions is told once. An asynchronous copy may
// write at any time from when it is asked for until its thread has waited for it, whatever barriers are between; so every other
// access to its word in that time races, its own thread's too.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

namespace {
using Clock = uint32_t;
using Code = const char*;  // the address behind the call, in the kernel
struct Access { Clock clock; Code code; };
constexpr int NOBODY = -1, SEVERAL = -2;
struct Word {
  int writer = NOBODY, reader = NOBODY;
  Access write{}, read{};
  std::vector<Access> reads;  // by thread, if there are several readers
  Code copy = nullptr;        // that is under way
};
using Known = std::vector<Clock>;  // of all threads
struct Thread { Clock clock = 1; std::shared_ptr<const Known> known; };

const char *first = nullptr, *behind = nullptr;  // shared memory; none between the runs
const int* current;
std::vector<Word> words;
std::vector<Thread> threads;
std::map<const void*, std::vector<int>> waiting;  // at a barrier
std::map<std::tuple<bool, Code, Code>, long> races;  // whether the later access writes, both places
long accesses;

bool ordered(int thread, const Access& access, int now) { return thread == now || (*threads[now].known)[thread] >= access.clock; }
void race(bool writes, const Access& one, Code other) { races[{writes, one.code, other}]++; }

void read_word(Word& word, int me, Code code) {
  const Access access{threads[me].clock, code};
  if (word.writer != NOBODY && !ordered(word.writer, word.write, me)) race(false, word.write, code);
  if (word.reader == SEVERAL) word.reads[me] = access;
  else if (word.reader == NOBODY || ordered(word.reader, word.read, me)) word.reader = me, word.read = access;
  else {
    word.reads.assign(threads.size(), Access{});
    word.reads[word.reader] = word.read;
    word.reads[me] = access;
    word.reader = SEVERAL;
  }
}
void write_word(Word& word, int me, Code code) {
  if (word.writer != NOBODY && !ordered(word.writer, word.write, me)) race(true, word.write, code);
  if (word.reader == SEVERAL) {
    for (int other = 0; other < (int)word.reads.size(); other++)
      if (word.reads[other].clock && !ordered(other, word.reads[other], me)) race(true, word.reads[other], code);
  } else if (word.reader != NOBODY && !ordered(word.reader, word.read, me)) race(true, word.read, code);
  word.writer = me, word.write = {threads[me].clock, code}, word.reader = NOBODY;
}
void access(const void* at, long bytes, bool writes, Code code) {
  const char *begin = std::max((const char*)at, first), *end = std::min((const char*)at + bytes, behind);
  if (begin >= end) return;
  const int me = *current;
  for (long word = (begin - first) / 4; word < (end - first + 3) / 4; word++) {
    accesses++;
    if (words[word].copy) race(writes, {0, words[word].copy}, code);
    if (writes) write_word(words[word], me, code);
    else read_word(words[word], me, code);
  }
}
}  // namespace

extern "C" {
void races_begin(const void* shared, long bytes, int count, const int* now) {
  words.assign(bytes / 4, Word{});
  threads.assign(count, Thread{1, std::make_shared<const Known>(count)});
  waiting.clear();
  current = now;
  first = (const char*)shared, behind = first + bytes;
}
void races_end() { first = behind = nullptr; }
void races_meet(const void* barrier, int size) {
  std::vector<int>& there = waiting[barrier];
  there.push_back(*current);
  if ((int)there.size() < size) return;
  auto known = std::make_shared<Known>(threads.size());
  const Known* taken = nullptr;
  for (int i : there) {
    const Thread& thread = threads[i];
    if (thread.known.get() != taken) {
      taken = thread.known.get();
      for (size_t k = 0; k < known->size(); k++) (*known)[k] = std::max((*known)[k], (*taken)[k]);
    }
  }
  for (int i : there) (*known)[i] = threads[i].clock;
  for (int i : there) threads[i].known = known, threads[i].clock++;
  there.clear();
}
void races_copy(void* at) {  // asked for
  const Code code = (Code)__builtin_return_address(0);
  access(at, 4, true, code);
  if ((const char*)at >= first && (const char*)at < behind) words[((const char*)at - first) / 4].copy = code;
}
void races_wait(void* at) {  // the write that is next is that of the copy
  if ((const char*)at >= first && (const char*)at < behind) words[((const char*)at - first) / 4].copy = nullptr;
}

// Since the last call: how many accesses to words of shared memory, and for each pair of instructions that race whether the later
// one writes, both addresses and how often. Returns the number of pairs.
int races_found(int most, long* counted, int* writes, const char** one, const char** other, long* times) {
  *counted = accesses;
  int i = 0;
  for (const auto& [pair, count] : races) {
    if (i < most) writes[i] = std::get<0>(pair), one[i] = std::get<1>(pair), other[i] = std::get<2>(pair), times[i] = count;
    i++;
  }
  races.clear();
  accesses = 0;
  return i;
}

#define ACCESS(name, bytes, writes) void name(void* at) { access(at, bytes, writes, (Code)__builtin_return_address(0)); }
#define SIZE(bytes) ACCESS(__tsan_read##bytes, bytes, false) ACCESS(__tsan_write##bytes, bytes, true)
#define UNALIGNED(bytes) ACCESS(__tsan_unaligned_read##bytes, bytes, false) ACCESS(__tsan_unaligned_write##bytes, bytes, true)
SIZE(1) SIZE(2) SIZE(4) SIZE(8) SIZE(16)
UNALIGNED(2) UNALIGNED(4) UNALIGNED(8) UNALIGNED(16)
void __tsan_read_range(void* at, unsigned long bytes) { access(at, bytes, false, (Code)__builtin_return_address(0)); }
void __tsan_write_range(void* at, unsigned long bytes) { access(at, bytes, true, (Code)__builtin_return_address(0)); }
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}
}
