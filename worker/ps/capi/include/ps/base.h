/* Names that all parts use: keys, groups of nodes, errors. */
#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

#include "elasticrun_ps.h"

namespace ps {

/* With USE_KEY32=1, a program has keys of 32 bits. Key k is the key k * 2^32 of other programs, so that all servers have some. */
#if defined(USE_KEY32) && USE_KEY32
using Key = std::uint32_t;
#else
using Key = std::uint64_t;
#endif

/* The largest key. It is a key like all others. */
constexpr Key kMaxKey = std::numeric_limits<Key>::max();

/* Groups of nodes. A sum of them is a group too. kScheduler is also the id of the scheduler. */
constexpr int kScheduler = ERPS_SCHEDULER;
constexpr int kServerGroup = ERPS_SERVERS;
constexpr int kWorkerGroup = ERPS_WORKERS;

/* Why a call failed. What ends a process in ps-lite is this exception here. */
class Error : public std::runtime_error {
 public:
  Error(int code, const std::string& text) : std::runtime_error(text), code_(code) {}

  /* ERPS_TIMEOUT and so on. */
  int code() const { return code_; }

 private:
  int code_;
};

namespace internal {

constexpr int kKeyShift = 64 - 8 * static_cast<int>(sizeof(Key));

/* A key as the library knows it, and back. */
inline std::uint64_t Widen(Key key) { return std::uint64_t{key} << kKeyShift; }
inline Key Narrow(std::uint64_t key) { return static_cast<Key>(key >> kKeyShift); }

/* Throws the error of a call that failed. */
inline void Check(int status) {
  if (status != ERPS_OK) throw Error(status, erps_last_error());
}

/* The number of a type of values. Programs may add one for their types of 16-bit floats. */
template <typename Val>
struct TypeOf;

#define ELASTICRUN_PS_TYPE(type, code) \
  template <>                          \
  struct TypeOf<type> {                \
    static constexpr int value = code; \
  }
ELASTICRUN_PS_TYPE(std::uint8_t, ERPS_U8);
ELASTICRUN_PS_TYPE(std::int8_t, ERPS_I8);
ELASTICRUN_PS_TYPE(char, ERPS_U8);
ELASTICRUN_PS_TYPE(std::uint16_t, ERPS_U16);
ELASTICRUN_PS_TYPE(std::int16_t, ERPS_I16);
ELASTICRUN_PS_TYPE(std::uint32_t, ERPS_U32);
ELASTICRUN_PS_TYPE(std::int32_t, ERPS_I32);
ELASTICRUN_PS_TYPE(std::uint64_t, ERPS_U64);
ELASTICRUN_PS_TYPE(std::int64_t, ERPS_I64);
ELASTICRUN_PS_TYPE(float, ERPS_F32);
ELASTICRUN_PS_TYPE(double, ERPS_F64);
#undef ELASTICRUN_PS_TYPE

}  // namespace internal
}  // namespace ps
