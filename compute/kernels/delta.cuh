// What both attention families share beside common.cuh: the row sums that the backward pass starts from.
#define THREADS 128

// delta[row] = dO . O - dlse, one thread a row; dsink[row] = -p_sink * delta. grid (ceil(n / 128) * batch * heads).
extern "C" __global__ void __launch_bounds__(THREADS)
attention_delta(const ST* __restrict__ o, const ST* __restrict__ d_o, const AT* __restrict__ lse,
                const AT* __restrict__ dlse, const AT* __restrict__ sink, AT* __restrict__ delta,
                AT* __restrict__ dsink, int n, int heads) {
  const Place place = place_of_block(n, THREADS);
  const int row = place.first + threadIdx.x;
  if (row >= n) return;
  const size_t head = place.head, at = head * n + row;
  AT sum = 0;
  if (lse[at] != -infinity((AT)0))
    for (int c = 0; c < HV; ++c) sum += (AT)o[at * HV + c] * (AT)d_o[at * HV + c];
  if (dlse != nullptr && lse[at] != -infinity((AT)0)) sum -= dlse[at];
  delta[at] = sum;
  if (sink == nullptr) return;
  const AT x = sink[head % heads];
  dsink[at] = x == -infinity((AT)0) ? (AT)0 : -exp_(x - lse[at]) * sum;
}
