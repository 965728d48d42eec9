"""Meanings of letters, which claims carry in English, in Japanese.

Guarantees: every meaning that a claim gives is here, without its shape (the tests ask each). A shape stays as it is
written, before or after the words.
Does not: say more than the English.
"""

from __future__ import annotations

import re

_MEANINGS = {
    # attention
    "the tokens": "トークン",
    "tokens": "トークン",
    "output": "出力",
    "keys": "キー",
    "key": "キー",
    "queries": "クエリ",
    "query": "クエリ",
    "values": "バリュー",
    "scores": "スコア",
    "scaled scores": "スケール後のスコア",
    "weights": "重み",
    "the scale": "スケール",
    "the scale, 1/√d_k by default": "スケール(既定は 1/√d_k)",
    "scale, the factor on q·k": "スケール(q·k に掛ける係数)",
    "number of keys": "キーの数",
    "number of tokens (of queries)": "トークン(クエリ)の数",
    "number of heads": "ヘッド数",
    "number of components of a token": "トークンの成分の数",
    "number of components of a query or key": "クエリ・キーの成分の数",
    "scores, a row for each query and a column for each key": "スコア(行がクエリ、列がキー)",
    "scores of the second head": "2 つ目のヘッドのスコア",
    "Gram matrix of the tokens X Xᵀ": "トークンのグラム行列 X Xᵀ",
    "key weights": "キーの重み",
    "query weights": "クエリの重み",
    "key weights of the second head": "2 つ目のヘッドのキーの重み",
    "query weights of the second head": "2 つ目のヘッドのクエリの重み",
    "tied weights": "共有された重み",
    "bias of the keys": "キーのバイアス",
    "bias of the queries": "クエリのバイアス",
    "softmax(x)": "softmax(x)",
    "softmax of the rows of S": "S の各行のソフトマックス",
    "an additive bias of the scaled scores": "スケール後のスコアに加えるバイアス",
    "the incoming gradient": "上流の勾配",
    "the incoming gradient of the log-sum-exp": "log-sum-exp への上流の勾配",
    "the scores of one row": "1 行のスコア",
    "the scores of row i": "行 i のスコア",
    "the output": "出力",
    "the output of self-attention without window or mask": "窓もマスクもない自己アテンションの出力",
    # moments
    "mean of a component of k": "k の成分の平均",
    "mean of a component of q": "q の成分の平均",
    "mean of an entry of X": "X の成分の平均",
    "standard deviation of a component of k, or of an entry of W_K": "k の成分、または W_K の成分の標準偏差",
    "standard deviation of a component of q, or of an entry of W_Q": "q の成分、または W_Q の成分の標準偏差",
    "standard deviation of an entry of X": "X の成分の標準偏差",
    "standard deviation of an entry of b_K": "b_K の成分の標準偏差",
    "standard deviation of an entry of b_Q": "b_Q の成分の標準偏差",
    "standard deviation of a weight": "重みの標準偏差",
    "standard deviation of a query's component": "クエリの成分の標準偏差",
    "of a key's component": "キーの成分の標準偏差",
    "skewness of a component of k": "k の成分の歪度",
    "skewness of a component of q": "q の成分の歪度",
    "excess kurtosis of a component of k, or of an entry of W_K": "k の成分、または W_K の成分の超過尖度",
    "excess kurtosis of a component of q, or of an entry of W_Q": "q の成分、または W_Q の成分の超過尖度",
    "excess kurtosis of an entry of X": "X の成分の超過尖度",
    "excess kurtosis of a weight": "重みの超過尖度",
    "correlation of q_c and k_c": "q_c と k_c の相関",
    "covariances of q with k": "q と k の共分散",
    "covariance matrix of k": "k の共分散行列",
    "covariance matrix of q": "q の共分散行列",
    "argument of the characteristic function": "特性関数の引数",
    "argument of the density or distribution function": "密度または分布関数の引数",
    "the mean of f over every random array in it.": "f に現れるすべての確率変数についての平均。",
    "Variance(f) = E[f²] − E[f]².": "f の分散 E[f²] − E[f]²。",
    "Covariance(f, g) = E[fg] − E[f] E[g].": "f と g の共分散 E[fg] − E[f] E[g]。",
    "the r-th cumulant, r = 1 … 8; the third is the third central moment.": (
        "r 次のキュムラント(r = 1 … 8)。3 次は 3 次の中心モーメント。"
    ),
    "Skewness(f) = κ₃ / κ₂^(3/2).": "f の歪度 κ₃ / κ₂^(3/2)。",
    "ExcessKurtosis(f) = κ₄ / κ₂² = E[(f − E f)⁴] / Var(f)² − 3: 0 for a Gaussian.": (
        "f の超過尖度 κ₄ / κ₂² = E[(f − E f)⁴] / Var(f)² − 3。ガウス分布では 0。"
    ),
    "CharacteristicFunction(f, t) = E e^(itf).": "f の特性関数 E e^(itf)。",
    "the probability density of f at z.": "f の z での確率密度。",
    "Distribution(f, z) = P(f ≤ z).": "f の分布関数 P(f ≤ z)。",
    "KolmogorovDistance(f) = sup_x |P(f ≤ x) − Φ(x)|, to the standard normal.": (
        "標準正規分布との Kolmogorov 距離 sup_x |P(f ≤ x) − Φ(x)|。"
    ),
    "WassersteinDistance(f) = ∫ |P(f ≤ x) − Φ(x)| dx, to the standard normal.": (
        "標準正規分布との Wasserstein 距離 ∫ |P(f ≤ x) − Φ(x)| dx。"
    ),
    "TotalVariationDistance(f) = ½ ∫ |p_f − φ|, to the standard normal.": (
        "標準正規分布との全変動距離 ½ ∫ |p_f − φ|。"
    ),
    # softmax
    "any real number, as minus the maximum": "任意の実数(最大値の符号を変えたものなど)",
    "any vector": "任意のベクトル",
    "any direction": "任意の方向",
    "1/2 at a and at b, else 0: no softmax of finite scores for n ≥ 3": (
        "a と b で 1/2、ほかは 0(n ≥ 3 では有限なスコアのソフトマックスではない)"
    ),
    "any place; b and k two others": "任意の位置(b と k はほかの 2 つ)",
    "the first of them": "その 1 つ目",
    "the second": "2 つ目",
    "the two leading scores; all others are 0": "上位 2 つのスコア(ほかはすべて 0)",
    "gap between the score a and every other": "スコア a とほかのすべてとの差",
    "the inverse temperature; alpha = softmax(tau x)": "逆温度(alpha = softmax(tau x))",
    "inverse temperature": "逆温度",
    "how far below the top the others are, > 0": "ほかのスコアが最大値をどれだけ下回るか(> 0)",
    "1 where the score equals the top score, else 0": "最大のスコアに等しいところで 1、ほかは 0",
    "any level above w·v_j for every key j": "すべてのキー j の w·v_j を上回る任意の値",
    # random rows
    "number of keys in a row": "行のキーの数",
    "squared Frobenius norm of J = diag(α) − ααᵀ": "J = diag(α) − ααᵀ のフロベニウスノルムの 2 乗",
    "Frobenius norm of J = diag(α) − ααᵀ": "J = diag(α) − ααᵀ のフロベニウスノルム",
    "Σ_j α_j²": "Σ_j α_j²",
    "Σ_j α_j³": "Σ_j α_j³",
    "Σ_j α_j⁴": "Σ_j α_j⁴",
    "variance of a row's scores (σ²)": "行のスコアの分散(σ²)",
    "mean over n i.i.d. scores N(0, v).": "n 個の i.i.d. N(0, v) のスコアについての平均。",
    "Σ_j α_j x_j, x the scores": "Σ_j α_j x_j(x はスコア)",
    "entropy of a row": "行のエントロピー",
    "log-sum-exp of a row": "行の log-sum-exp",
    "trace of J, 1 − Σα²": "J のトレース 1 − Σα²",
    "the Taylor polynomial of f in v at 0, to v^order.": "f の v = 0 での、v^order までのテイラー多項式。",
    "the expansion of f in 1/n at fixed v, to relative order n^-order.": (
        "v を固定して f を 1/n で相対的に n^-order の項まで展開したもの。"
    ),
    "the mean of the largest of n standard normals; mu(2) = 1/√π.": (
        "n 個の標準正規変数の最大値の平均。mu(2) = 1/√π。"
    ),
    "largest weight of a row": "行の最大の重み",
    "freezing(n) = b_n: n φ(b)/b = 1.": "b_n:n φ(b)/b = 1 の解。",
    "√v in units of √(2 log n)": "√(2 log n) を単位とする √v",
    "distribution function of the standard normal at z": "標準正規分布の z での分布関数",
    "density of the standard normal at z": "標準正規分布の z での密度",
    "median of f over n i.i.d. N(0, v) scores.": "n 個の i.i.d. N(0, v) のスコアについての f の中央値。",
    "median of the gap between the two largest of n standard normals.": (
        "n 個の標準正規変数の最大値と 2 番目との差の中央値。"
    ),
    "threshold below which a row counts as saturated": "これを下回る行を飽和とみなすしきい値",
    "probability that f ≥ level, over n i.i.d. N(0, v) scores.": (
        "n 個の i.i.d. N(0, v) のスコアについて f ≥ level となる確率。"
    ),
    "squared norm of J z, z the standardised scores": "J z のノルムの 2 乗(z は標準化したスコア)",
    "mean squared norm of a gradient per row (or key) and per unit of d_v.": (
        "勾配のノルムの 2 乗の平均(1 行または 1 キーあたり、d_v の 1 単位あたり)。"
    ),
    "mean over scores s q·k, q and n keys independent, standard normal, of size d_k.": (
        "独立な標準正規の q と n 個のキー(次元 d_k)のスコア s q·k についての平均。"
    ),
    "zᵀJz, the variance of z under the weights": "zᵀJz(重みのもとでの z の分散)",
    "the mean squared gradient in attention from one X to n other tokens of it.": (
        "1 つの X から、そのほかの n トークンへのアテンションでの勾配の二乗平均。"
    ),
    "the same for self-attention from one X, with weights N(0, 1/d_model).": (
        "1 つの X からの自己アテンション(重み N(0, 1/d_model))での同じ平均。"
    ),
    "square of α·z, z the standardised scores": "α·z の 2 乗(z は標準化したスコア)",
    "the same with the own key among the n, to order 1/(n d_model).": (
        "n 個に自身のキーを含むときの同じ量(1/(n d_model) の次数まで)。"
    ),
    "cosine of the angle between the two directions": "2 方向のなす角の余弦",
    "bound of the scores: every score lies in [−g, g]": "スコアの上界:すべて [−g, g] にある",
    "mean of f over c = cos of the angle between two independent uniform directions in d dimensions.": (
        "d 次元の独立で一様な 2 方向のなす角の余弦 c についての f の平均。"
    ),
    "deviation of the scores in units of the cap, or of 1": "上限(または 1)を単位とするスコアの標準偏差",
    "temperature, by which scores are divided": "温度(スコアをこれで割る)",
    "spread of the scores in units of √(2 log n)": "√(2 log n) を単位とするスコアの標準偏差",
    "probability that sparsemax gives all the weight to one key": "sparsemax が 1 つのキーにすべての重みを与える確率",
    "probability that the two largest of n standard normals differ by more than t.": (
        "n 個の標準正規変数の上位 2 つの差が t を超える確率。"
    ),
    "mean of ‖J‖_F² of sparsemax over a row": "行についての sparsemax の ‖J‖_F² の平均",
    "scale of the scores in units of log n": "log n を単位とするスコアの大きさ",
    "correlation, or cosine, of two rows or tokens": "2 行または 2 トークンの相関または余弦",
    "common cosine of two tokens": "2 トークンに共通の余弦",
    "weight of one named key": "ある 1 つのキーの重み",
    "mean of Σ_k α_k β_k over two rows of n scores N(0, v), x_k and x'_k of correlation rho.": (
        "x_k と x'_k の相関が rho の、n 個の N(0, v) のスコアの 2 行についての Σ_k α_k β_k の平均。"
    ),
    # gradients
    "α∘(T − rowsum(α∘T)), the weights' change along U": "α∘(T − rowsum(α∘T)):U 方向の重みの変化",
    "A∘(dα − rho) − α∘rowsum(A∘dα), the change of dS' along U": "A∘(dα − rho) − α∘rowsum(A∘dα):U 方向の dS' の変化",
    "rowsum(α∘dα)": "rowsum(α∘dα)",
    "the change of the scaled scores along U: U Kᵀ/√d_k, or Q Uᵀ/√d_k for dK": (
        "U 方向のスケール後のスコアの変化:U Kᵀ/√d_k(dK では Q Uᵀ/√d_k)"
    ),
    "a direction, of the shape of Q (of K for dK)": "方向(Q と同じ形、dK では K と同じ形)",
    # online softmax
    "shift before": "前のシフト",
    "shift after": "後のシフト",
    "where the keys are split, 0 ≤ h ≤ n": "キーを分ける位置(0 ≤ h ≤ n)",
    "any finite shift": "任意の有限なシフト",
    "running sum at shift mu_1": "シフト mu_1 での部分和",
    "shift between": "途中のシフト",
    "shift of the result": "結果のシフト",
    "minus the shift of the second state": "2 つ目の状態のシフトの符号を変えたもの",
    "a shift that no score exceeds, as the product of norms": "どのスコアも超えないシフト(ノルムの積など)",
    # masks and positions
    "the masked key": "マスクされたキー",
    "1 for a key that takes part, 0 for a masked one": "参加するキーで 1、マスクされたキーで 0",
    "how much is taken from the score of key a": "キー a のスコアから引く量",
    "scores of all m queries": "m 個のクエリすべてのスコア",
    "those of the last n": "最後の n 個のもの",
    "how many keys before its own a query sees": "クエリが自身の位置より前に見るキーの数",
    "the row, and the reach of its window": "行と、その窓の届く範囲",
    "the cap, > 0: a score s becomes cap·tanh(s/cap)": "上限(> 0):スコア s は cap·tanh(s/cap) になる",
    "values, the last 0": "バリュー(最後は 0)",
    "the scores and, last, the sink's logit": "スコアと、最後にシンクのロジット",
    "the logit of the sink: not scaled, not masked, not capped": ("シンクのロジット(スケールもマスクも上限も受けない)"),
    "minus the sink's logit": "シンクのロジットの符号を変えたもの",
    "first channels of the key's pairs; k' the second": "キーの対の 1 つ目のチャネル(k' は 2 つ目)",
    "position of the query": "クエリの位置",
    "first channels of the query's pairs; q' the second": "クエリの対の 1 つ目のチャネル(q' は 2 つ目)",
    "position of the key": "キーの位置",
    "the angles": "角度",
    "the common shift": "共通のずれ",
    "the turned query's pairs": "回転したクエリの対",
    "the turned key's pairs": "回転したキーの対",
    "the turned query": "回転したクエリ",
    "the turned key": "回転したキー",
    "the slope of a head": "ヘッドの傾き",
    # heads
    "row block g of W^O belongs to head g": "W^O の行ブロック g がヘッド g に属する",
    "the output of each head": "各ヘッドの出力",
    "the concatenation with the new head last": "新しいヘッドを最後につないだもの",
    "W^O": "W^O",
    "the output of the only head": "ただ 1 つのヘッドの出力",
    "the gradient after W^O": "W^O の後の勾配",
    "another head": "別のヘッド",
    "channel of the concatenation: head ⌊u/d_v⌋, channel u mod d_v": (
        "連結後のチャネル:ヘッド ⌊u/d_v⌋、チャネル u mod d_v"
    ),
    "one key head a group": "グループごとに 1 つのキーヘッド",
    "K repeated r times": "K を r 回繰り返したもの",
    "r query heads a group": "グループごとに r 個のクエリヘッド",
    "one value head a group": "グループごとに 1 つのバリューヘッド",
    # recurrence, depth
    "what the inputs add at each step": "各ステップで入力が加えるもの",
    "states; h_0 = u": "状態(h_0 = u)",
    "number of steps": "ステップ数",
    "the product of the first t Jacobians": "最初の t 個のヤコビ行列の積",
    "the recurrent matrix": "再帰の行列",
    "P_t v": "P_t v",
    "the arguments of tanh": "tanh の引数",
    "cell states; c_0 = u": "セルの状態(c_0 = u)",
    "forget gates, held fixed": "忘却ゲート(固定)",
    "what is written, held fixed": "書き込まれるもの(固定)",
    "the cell before": "前のセル",
    "the output gate, held fixed": "出力ゲート(固定)",
    "recurrent weights of the forget gate f = (1 + tanh(U(o∘tanh c)))/2, σ as tanh": (
        "忘却ゲート f = (1 + tanh(U(o∘tanh c)))/2 の再帰の重み(σ は tanh で表す)"
    ),
    "output weights of each layer": "各層の出力の重み",
    "input weights of each layer": "各層の入力の重み",
    "biases": "バイアス",
    "Jacobian of the first layer's f": "1 層目の f のヤコビ行列",
    "of the second's": "2 層目のもの",
    "the Jacobian of the first t layers": "最初の t 層のヤコビ行列",
    "the stream after each layer; X_0 = u": "各層の後のストリーム(X_0 = u)",
    "the Jacobians of the layers' f": "各層の f のヤコビ行列",
    "dimension of the representation": "表現の次元",
    "length of the sequence": "系列の長さ",
    "width of the kernel": "カーネルの幅",
    "size of the neighbourhood of restricted attention": "制限つきアテンションの近傍の大きさ",
    "number of layers": "層の数",
}
_BEFORE = re.compile(r"(\([^()]*\))(?:, |: )?(.*)")
_AFTER = re.compile(r"(.*), (\([^()]*\))")


def japanese(meaning: str) -> str:
    """The meaning in Japanese, its shape left as it is. A meaning that is not here is a KeyError."""
    if meaning in _MEANINGS:
        return _MEANINGS[meaning]
    if found := _BEFORE.fullmatch(meaning):
        shape, words = found.groups()
        return f"{shape} {_MEANINGS[words]}" if words else shape
    if found := _AFTER.fullmatch(meaning):
        return f"{_MEANINGS[found[1]]} {found[2]}"
    raise KeyError(meaning)
