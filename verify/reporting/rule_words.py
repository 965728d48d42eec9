"""What derive says in English only, in Japanese: why each rule is sound, and conditions in words.

Guarantees: every rule that a claim uses and every condition in words of a claim is here (the tests ask each).
Does not: say more than the English; that is the first sentence of a rule's own text, or the condition itself.
"""

from __future__ import annotations

REASONS = {
    "angle-addition": "和の角の sin と cos を加法定理で開き、sin² を 1 − cos² とすると両辺は等しい。",
    "bounded-scores": "n 個のスコアがすべて [-g, g] にあれば max α ≤ e^g/(e^g + (n-1) e^-g)。",
    "certified-difference": "rhs − lhs は負になりえない項の和なので lhs ≤ rhs。",
    "equals-for-equals": "両辺の違いは、等しいと証明されたものどうしの置き換えだけである。",
    "exchangeable": (
        "i.i.d. のスコアの重みは交換可能なので、E α_j^k はどのキー j でも同じで E p_k / n。また E p_1 = 1。"
    ),
    "flat-index": (
        "Σ_{u=0}^{hd−1} f(u) = Σ_{g=0}^{h−1} Σ_{c=0}^{d−1} f(g·d + c):h·d 未満の u はただ 1 通りに g·d + c と書ける。"
    ),
    "frozen": (
        "n → ∞、m = σ_c/σ < 1 のとき、凍結した行の重みは Poisson-Dirichlet 分布 PD(m) に従い、そのモーメントは厳密。"
    ),
    "gibbs": "どの行でも max x - log n ≤ max x - H ≤ α·x ≤ max x なので、平均もこの順になる。",
    "gradient-traces": (
        "勾配の二乗平均は J とバリュー・キーのグラム行列のトレースであり、その平均は Wick の定理で求まる。"
    ),
    "heat-flow": "熱方程式:i.i.d. N(0, v) の x_l と、有界な導関数をもつ滑らかな F について d/dv E F(x) = ½ E ΔF(x)。",
    "heat-series": "v = 0 でのテイラー係数:熱方程式を k 回用いると v^k の係数は (Δ^k F)(0)/(2^k k!)。",
    "iterated-bound": (
        "すべての w で |F_t(w)|² ≤ c_t |w|²、c_t ≥ 0 なので、すべての L で |w_L|² ≤ |w_0|² Π_{t=1}^{L} c_t。"
    ),
    "iterated-chain-rule": "連鎖律の帰納法により、すべての L で ∂h_L/∂h_0 は 1 ステップのヤコビ行列 L 個の積。",
    "iterated-factors": "a_t = f_t · a_(t−1) なので、すべての L で a_L = a_0 Π_{t=1}^{L} f_t(空の積は 1)。",
    "iterated-sum": (
        "a_t = a_(t−1) + g_t なので、すべての L で a_L = a_0 + Σ_{t=1}^{L} g_t(g_t は a_(t−1) を使ってよい)。"
    ),
    "limit-laws": "極限の法則(和、積、商、連続性、exp(−bx) → 0)により lim f = rhs。",
    "log-rational": "e^g の有理式として X = e^(g/c) なので c log X = g(c は有理数、X > 0)。",
    "many-keys": (
        "平均 M_k = (1/n) Σ_j e^(k x_j) の滑らかな関数を、v を固定して 1/n で相対的に 1/n の項まで展開する。"
    ),
    "median-of-gap": (
        "log ‖J‖_F は上位 2 つの差 g だけ、したがってその中央値 √v gap_median(n) だけで上下から抑えられる。"
    ),
    "median-of-two": "n = 2 では ‖J‖_F = 1/(1 + cosh t) は |t| とともに減るので、中央値は √v gap_median(2) での値。",
    "moment-limit": "左辺を moment-routes と同じく全サイズについて求め、極限を最高次の項から読み取る。",
    "moment-routes": "左辺の 2 通りの厳密な導出がどちらも右辺の係数を与え、小さいサイズの全列挙とも一致する。",
    "near-tie": "n ≥ 2 を固定して分散 w → ∞ のとき √w E F(softmax(√w z)) → mu_n ∫_0^∞ F(2 つのキー、差 t) dt。",
    "near-tie-share": "n ≥ 2、0 < ε < 1/2 を固定して v → ∞ のとき √v P(‖J‖_F ≥ ε) → mu_n arcosh(1/ε - 1)。",
    "normal-form": "全サイズでの等式:lhs − rhs の正規形が空で、素数を法とする厳密計算とも一致する。",
    "oracle-grid": "両辺を格子のすべての点で評価する。平均は厳密なオラクルによる。",
    "own-key": "トークン自身のキーが勾配の二乗平均に加える分:その n d_model 倍は右辺に収束する。",
    "power-mean": "和が 1 の非負の重み n 個について p_k ≥ n^(1-k)(Jensen)なので、その平均も同じく下から抑えられる。",
    "power-of-n": "両辺は、n と、多項式を指数とする累乗 n^e = e^(e log n) との、同じ有理式である。",
    "rank-factorisation": "行列 M[rows, columns] = Σ_{inner < r} left · right の階数は r 以下。",
    "rational-order": (
        "n = 1 + k、e^g = 1 + t と置くと rhs - lhs は k, t ≥ 0 の、負の係数のない多項式の商なので lhs ≤ rhs。"
    ),
    "row-mean": "平均の線形性と、略記 tr J = 1 - p_2、‖J‖_F² = p_2 - 2p_3 + p_2²、H = log Z - α·x による。",
    "score-law": "右辺は、格子の上でクエリの長さについての積分と 20 桁で、または極限と一致する。",
    "sparsemax-gap": (
        "sparsemax の行がキーを 1 つだけ残すのは、上位 2 つの差が 1 以上のときに限る(Martins, Astudillo 2016, 2.2 節)。"
    ),
    "sparsemax-tie": "sparsemax では n ≥ 2 を固定して v → ∞ のとき √v E(|台| - 1) → mu_n。|台| - 1 はその ‖J‖_F²。",
    "sphere": "d 次元の独立で一様な 2 方向について E cos^(2k) = Π_{j<k} (2j + 1)/(d + 2j)。奇数次は 0。",
    "squeeze": "大きなすべての v で c L ≤ c F ≤ c U であり、c L と c U が同じ極限をもてば、c F もそれに収束する。",
    "stein": "ガウス分布の部分積分:i.i.d. N(0, v) のスコアと滑らかで有界な h について E[x_l h] = v E[∂_l h]。",
    "telescoping": "すべての l で F(l + 1) − F(l) = f(l) なので Σ_{l=a}^{b} f(l) = F(b + 1) − F(a)。",
    "total-derivative": "f - g = dG/dz で G が両端で 0 になるので、実数全体で ∫ f = ∫ g。",
    "two-keys": "n = 2 では行は差 t ~ N(0, 2v) の関数なので、平均は t についての 1 つの積分である。",
    "two-rows": "v を固定して n → ∞ のとき n E Σ_k α_k β_k → e^(ρv)。",
    "wide-normal": (
        "I = ∫f、M = ∫x² f がともに有限な f ≥ 0 について ∫ f(λz) φ(z) dz = (I - ϑ M/2λ²)/(λ √(2π))、0 ≤ ϑ ≤ 1。"
    ),
}

CONDITIONS = {
    "0 < epsilon < 1/2": "0 < epsilon < 1/2",
    "P_one_key: probability that sparsemax gives all the weight to one key": (
        "P_one_key:sparsemax が 1 つのキーにすべての重みを与える確率"
    ),
    "Q = X W^Q, K = X W^K, V = X W^V from one X with i.i.d. N(0, 1) entries, weights i.i.d. N(0, 1/d_model), upstream "
    "gradient i.i.d. N(0, 1)": (
        "1 つの X から Q = X W^Q、K = X W^K、V = X W^V。X の成分は i.i.d. N(0, 1)、重みは i.i.d. N(0, 1/d_model)、"
        "上流の勾配は i.i.d. N(0, 1)"
    ),
    "d_k → ∞ at fixed n ≥ 2": "n ≥ 2 を固定して d_k → ∞",
    "d_k ≤ d_model": "d_k ≤ d_model",
    "d_model → ∞ at fixed n, d_k, s": "n、d_k、s を固定して d_model → ∞",
    "entries of Q, K (and V, and the upstream gradient) are i.i.d. N(0, 1), independent of each other": (
        "Q と K(および V と上流の勾配)の成分は i.i.d. N(0, 1) で、互いに独立"
    ),
    "every score of the row lies in [−g, g]": "行のスコアはすべて [−g, g] にある",
    "n = 2": "n = 2",
    "n → ∞ at fixed 1/√3 < x < 1; slow": "1/√3 < x < 1 を固定して n → ∞(収束は遅い)",
    "n → ∞ at fixed b > 1; b_n/√(2 log n) → 1": "b > 1 を固定して n → ∞。b_n/√(2 log n) → 1",
    "n → ∞ at fixed d_k > 2 (the error is stated for d_k > 6)": "d_k > 2 を固定して n → ∞(誤差を述べるのは d_k > 6)",
    "n → ∞ at fixed v: usable while e^(2v) is well below n": (
        "v を固定して n → ∞。e^(2v) が n より十分小さい間は使える"
    ),
    "n → ∞ at fixed x < 1/√3": "x < 1/√3 を固定して n → ∞",
    "n → ∞ with √v above σ_c = √(2 log n); finite n enters through b_n, n φ(b)/b = 1": (
        "√v が σ_c = √(2 log n) を上回ったまま n → ∞。有限の n は b_n(n φ(b)/b = 1)を通して入る"
    ),
    "n → ∞; the spread passes √(2 log n) at log n = 2/(s² v)": (
        "n → ∞。ばらつきは log n = 2/(s² v) で √(2 log n) を超える"
    ),
    "n ≥ 2": "n ≥ 2",
    "n ≥ 2; the argument of the log is (n − 1)α/(1 − α) at α = 1/(1 + (n − 1)e^(−2g))": (
        "n ≥ 2。対数の中は α = 1/(1 + (n − 1)e^(−2g)) での (n − 1)α/(1 − α)"
    ),
    "no mask and no positional term": "マスクも位置の項もない",
    "phi, Phi: density and distribution function of the standard normal at z; the right side is mu_n": (
        "phi, Phi:標準正規分布の z での密度と分布関数。右辺は mu_n"
    ),
    "q and k are random directions (unit vectors), scores g cos(q, k)": (
        "q と k はランダムな方向(単位ベクトル)、スコアは g cos(q, k)"
    ),
    "scores N(0, σ²), lambda = σ → ∞": "スコアは N(0, σ²)、lambda = σ → ∞",
    "scores N(0, σ²), lambda = σ/c → ∞": "スコアは N(0, σ²)、lambda = σ/c → ∞",
    "scores are divided by T; T → 0 at fixed n ≥ 2": "スコアを T で割る。n ≥ 2 を固定して T → 0",
    "scores of a row are i.i.d. N(0, v)": "行のスコアは i.i.d. N(0, v)",
    "scores of a row are i.i.d. N(0, v), v = 2 x² log n": "行のスコアは i.i.d. N(0, v)、v = 2 x² log n",
    "the row's n keys are of other tokens; for the effect of the own key see the claims …_own_key": (
        "行の n 個のキーはほかのトークンのもの。自身のキーの影響は命題 …_own_key を参照"
    ),
    "the token's own key is among the row's n keys; the next order is 1/d_model of what is stated": (
        "行の n 個のキーにトークン自身のキーが含まれる。次の次数は述べた量の 1/d_model"
    ),
    "the weights of a frozen row follow the Poisson-Dirichlet law PD(m) as n → ∞ (Derrida 1981; Ruelle 1987)": (
        "n → ∞ で凍結した行の重みは Poisson-Dirichlet 分布 PD(m) に従う(Derrida 1981; Ruelle 1987)"
    ),
    "tied[l] is 1 for a score equal to the top score, else 0": "tied[l] は最大のスコアに等しいスコアで 1、ほかは 0",
    "tokens of unit length with one common cosine c: ⟨x_k, x_l⟩ = c + (1 − c) δ_kl": (
        "長さ 1 のトークンで、どの 2 つの余弦も c:⟨x_k, x_l⟩ = c + (1 − c) δ_kl"
    ),
    "v = 2 log n exactly, n → ∞": "v = 2 log n ちょうど、n → ∞",
    "v > 0": "v > 0",
    "v → 0 at any n: remainder at most C v^(order+1), C in the verdict": (
        "任意の n で v → 0。剰余は C v^(次数+1) 以下(C は判定に示す)"
    ),
    "v → ∞ at fixed n ≥ 2": "n ≥ 2 を固定して v → ∞",
    "v → ∞ at fixed n ≥ 2; mu_n is the mean of the largest of n normals": (
        "n ≥ 2 を固定して v → ∞。mu_n は n 個の標準正規変数の最大値の平均"
    ),
    "x_k and x'_k have correlation rho; n → ∞ at fixed v": "x_k と x'_k の相関は rho。v を固定して n → ∞",
    "⟨x_i, x_i⟩ = 1, ⟨x_i, x_j⟩ = rho < 1": "⟨x_i, x_i⟩ = 1、⟨x_i, x_j⟩ = rho < 1",
}
