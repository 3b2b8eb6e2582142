# SPDX-License-Identifier: Apache-2.0
# Writes what R finds on published data sets: data/*.csv and reference.csv beside this file.
#
#   Rscript tests/studies/fast/golden/statistics/reference.R
#
# The tests only read the files. Data: R's package `datasets` (see README.md for who measured them).
# Packages: stats; car (Anova, leveneTest, durbinWatsonTest); rstatix (games_howell_test);
# effectsize (eta, omega, Hedges' g); emmeans (means that weigh the cells equally);
# multcompView (letters).
suppressMessages({library(car); library(emmeans); library(multcompView)})
options(digits = 17, contrasts = c("contr.sum", "contr.poly"))

here <- dirname(sub("--file=", "", grep("--file=", commandArgs(FALSE), value = TRUE)))
dir.create(file.path(here, "data"), showWarnings = FALSE)
store <- function(data, name) {
  write.csv(data, file.path(here, "data", paste0(name, ".csv")), row.names = FALSE, quote = FALSE)
}

found <- list()
add <- function(data, test, term, ...) {
  values <- list(...)
  for (name in names(values)) {
    found[[length(found) + 1]] <<- data.frame(data = data, test = test, term = term,
      statistic = name, value = format(as.numeric(values[[name]]), digits = 16))
  }
}

# The data sets -------------------------------------------------------------------------------
npk$block <- factor(npk$block)
tooth <- transform(ToothGrowth, dose = factor(dose))
# As after failed runs: cells of 3 to 9.
warp_lost <- warpbreaks[-c(1, 2, 3, 4, 12, 20, 21, 30, 40, 41, 42, 43, 44, 53), ]
npk_lost <- npk[-c(3, 8, 17), ]
arrests <- cbind(state = rownames(USArrests), USArrests)
store(PlantGrowth, "plant_growth"); store(warpbreaks, "warpbreaks"); store(warp_lost, "warpbreaks_lost")
store(npk, "npk"); store(npk_lost, "npk_lost"); store(tooth, "tooth_growth")
store(chickwts, "chickwts"); store(InsectSprays, "insect_sprays"); store(cars, "cars")
store(arrests, "us_arrests"); store(iris, "iris")

# Analysis of variance ------------------------------------------------------------------------
table_of <- function(data, test, table, column = "Sum Sq") {
  for (term in setdiff(rownames(table), "(Intercept)")) {
    row <- table[term, ]
    add(data, test, gsub(" ", "", term), sum_sq = row[[column]], df = row[["Df"]])
    if (!is.na(row[["F value"]])) add(data, test, gsub(" ", "", term), f = row[["F value"]], p = row[["Pr(>F)"]])
  }
}
both <- function(data, model) {
  table_of(data, "type2", Anova(model, type = 2))
  table_of(data, "type3", Anova(model, type = 3))
}
one_way <- list(plant_growth = lm(weight ~ group, PlantGrowth), chickwts = lm(weight ~ feed, chickwts),
                insect_sprays = lm(count ~ spray, InsectSprays))
for (name in names(one_way)) table_of(name, "aov", summary(aov(one_way[[name]]))[[1]])
two_way <- list(warpbreaks = lm(breaks ~ wool * tension, warpbreaks),
                warpbreaks_lost = lm(breaks ~ wool * tension, warp_lost),
                tooth_growth = lm(len ~ supp * dose, tooth))
for (name in names(two_way)) both(name, two_way[[name]])
table_of("npk", "aov", summary(aov(yield ~ block + N * P * K, npk))[[1]])  # N:P:K is block's
both("npk_lost", lm(yield ~ block + N + P + K + N:P + N:K + P:K, npk_lost))

for (name in c("warpbreaks", "tooth_growth", "warpbreaks_lost")) {
  table <- Anova(two_way[[name]], type = 2)
  eta <- effectsize::eta_squared(table, partial = FALSE, verbose = FALSE)
  partial <- effectsize::eta_squared(table, partial = TRUE, verbose = FALSE)
  omega <- effectsize::omega_squared(table, partial = FALSE, verbose = FALSE)
  for (i in seq_len(nrow(eta))) add(name, "share", eta$Parameter[i], eta_squared = eta$Eta2[i],
    partial_eta_squared = partial$Eta2_partial[i], omega_squared = omega$Omega2[i])
}

# Welch, residuals ------------------------------------------------------------------------------
for (name in names(one_way)) {
  model <- one_way[[name]]
  welch <- oneway.test(formula(model), model$model)
  add(name, "welch", "groups", f = welch$statistic, df = welch$parameter[1], df_error = welch$parameter[2], p = welch$p.value)
}
for (name in c(names(one_way), names(two_way))) {
  model <- c(one_way, two_way)[[name]]
  values <- model$model[[1]]
  groups <- interaction(model$model[-1], drop = TRUE)
  shapiro <- shapiro.test(residuals(model))
  add(name, "shapiro", "residuals", statistic = shapiro$statistic, p = shapiro$p.value)
  brown <- leveneTest(values, groups, center = median)
  add(name, "brown_forsythe", "groups", statistic = brown[1, "F value"], p = brown[1, "Pr(>F)"])
  levene <- leveneTest(values, groups, center = mean)
  add(name, "levene", "groups", statistic = levene[1, "F value"], p = levene[1, "Pr(>F)"])
  set.seed(1)
  add(name, "durbin_watson", "residuals", statistic = durbinWatsonTest(model, simulate = FALSE)$dw)
  outliers <- which(abs(rstudent(model)) > qt(1 - 0.05 / (2 * nobs(model)), df.residual(model) - 1))
  add(name, "outliers", "residuals", count = length(outliers), largest = max(abs(rstudent(model))))
}

# Pairs -----------------------------------------------------------------------------------------
tukey_of <- function(data, test, table) for (pair in rownames(table)) {
  row <- table[pair, ]
  add(data, test, pair, difference = row[["diff"]], low = row[["lwr"]], high = row[["upr"]], p = row[["p adj"]])
}
for (name in names(one_way)) tukey_of(name, "tukey", TukeyHSD(aov(one_way[[name]]))[[1]])
tukey_of("warpbreaks", "tukey", TukeyHSD(aov(breaks ~ wool * tension, warpbreaks))$tension)
tukey_of("warpbreaks", "tukey", TukeyHSD(aov(breaks ~ wool * tension, warpbreaks))$`wool:tension`)
tukey_of("tooth_growth", "tukey", TukeyHSD(aov(len ~ supp * dose, tooth))$dose)
means <- emmeans(two_way$warpbreaks_lost, ~ tension)
for (i in seq_len(3)) add("warpbreaks_lost", "mean", as.character(as.data.frame(means)$tension[i]),
  mean = as.data.frame(means)$emmean[i], se = as.data.frame(means)$SE[i])
pairs <- as.data.frame(summary(pairs(means, adjust = "tukey"), infer = c(TRUE, TRUE)))
for (i in seq_len(nrow(pairs))) add("warpbreaks_lost", "emmeans", gsub(" ", "", pairs$contrast[i]),
  difference = pairs$estimate[i], low = pairs$lower.CL[i], high = pairs$upper.CL[i], p = pairs$p.value[i])
games <- function(data, table, response, group) {
  result <- rstatix::games_howell_test(table, as.formula(paste(response, "~", group)), detailed = TRUE)
  for (i in seq_len(nrow(result))) add(data, "games_howell", paste(result$group2[i], result$group1[i], sep = "-"),
    difference = result$estimate[i], low = result$conf.low[i], high = result$conf.high[i],
    se = result$se[i], statistic = result$statistic[i], df = result$df[i])
}
games("plant_growth", PlantGrowth, "weight", "group")
games("chickwts", chickwts, "weight", "feed")
games("insect_sprays", InsectSprays, "count", "spray")
letters_of <- function(data, table, response, group) {
  p <- TukeyHSD(aov(as.formula(paste(response, "~", group)), table))[[1]][, "p adj"]
  order <- names(sort(tapply(table[[response]], table[[group]], mean), decreasing = TRUE))
  result <- multcompLetters2(as.formula(paste(response, "~", group)), p, table)$Letters
  for (level in order) found[[length(found) + 1]] <<- data.frame(data = data, test = "letters",
    term = level, statistic = "letters", value = result[[level]])
}
letters_of("plant_growth", PlantGrowth, "weight", "group")
letters_of("chickwts", chickwts, "weight", "feed")
letters_of("insect_sprays", InsectSprays, "count", "spray")

g_of <- function(data, x, y, term, pooled) {
  g <- effectsize::hedges_g(x, y, pooled_sd = pooled)
  add(data, if (pooled) "hedges_g" else "hedges_g_unpooled", term, g = g$Hedges_g, low = g$CI_low, high = g$CI_high)
}
weight <- split(PlantGrowth$weight, PlantGrowth$group)
g_of("plant_growth", weight$trt2, weight$trt1, "trt2-trt1", TRUE)
g_of("plant_growth", weight$trt1, weight$ctrl, "trt1-ctrl", TRUE)
count <- split(InsectSprays$count, InsectSprays$spray)
g_of("insect_sprays", count$B, count$C, "B-C", TRUE)
feed <- split(chickwts$weight, chickwts$feed)
g_of("chickwts", feed$sunflower, feed$horsebean, "sunflower-horsebean", TRUE)

# Aligned rank transform, by its definition (Wobbrock et al. 2011): no package for it in Debian ----
art <- function(data, table, response, a, b) {
  y <- table[[response]]; cell <- ave(y, table[[a]], table[[b]])
  cells <- tapply(y, table[c(a, b)], mean)
  grand <- mean(cells); main_a <- rowMeans(cells) - grand; main_b <- colMeans(cells) - grand
  own_a <- main_a[as.character(table[[a]])]; own_b <- main_b[as.character(table[[b]])]
  effects <- list(own_a, own_b, cell - grand - own_a - own_b)
  names(effects) <- c(a, b, paste(a, b, sep = ":"))
  for (term in names(effects)) {
    table$rank <- rank(round(y - cell + effects[[term]], 10))
    model <- lm(as.formula(paste("rank ~", a, "*", b)), table)
    row <- Anova(model, type = 2)[term, ]
    add(data, "art", term, f = row[["F value"]], df = row[["Df"]], df_error = df.residual(model), p = row[["Pr(>F)"]])
  }
}
art("warpbreaks", warpbreaks, "breaks", "wool", "tension")
art("warpbreaks_lost", warp_lost, "breaks", "wool", "tension")
art("tooth_growth", tooth, "len", "supp", "dose")

# Regression, correlation -------------------------------------------------------------------------
line <- function(data, model, x, y) {
  ends <- confint(model); s <- summary(model)
  add(data, "regression", "line", intercept = coef(model)[1], slope = coef(model)[2],
      intercept_low = ends[1, 1], intercept_high = ends[1, 2], slope_low = ends[2, 1], slope_high = ends[2, 2],
      r_squared = s$r.squared, slope_p = s$coefficients[2, 4])
  pearson <- cor.test(x, y)
  add(data, "pearson", "line", r = pearson$estimate, low = pearson$conf.int[1], high = pearson$conf.int[2], p = pearson$p.value)
  add(data, "spearman", "line", r = cor(x, y, method = "spearman"))
}
line("cars", lm(dist ~ speed, cars), cars$speed, cars$dist)
line("iris", lm(Petal.Width ~ Petal.Length, iris), iris$Petal.Length, iris$Petal.Width)
given <- c(0.01, 0.04, 0.03, 0.005)
for (i in 1:4) add("none", "holm", as.character(given[i]), p = p.adjust(given, "holm")[i])

# Principal components, clusters ------------------------------------------------------------------
components <- function(data, numbers) {
  result <- prcomp(numbers, scale. = TRUE)
  for (i in seq_along(result$sdev)) add(data, "prcomp", paste0("PC", i), sdev = result$sdev[i],
    proportion = result$sdev[i]^2 / sum(result$sdev^2))
  for (variable in rownames(result$rotation)) for (i in seq_along(result$sdev))
    add(data, "prcomp_rotation", paste(variable, paste0("PC", i), sep = ":"), loading = result$rotation[variable, i])
}
clusters <- function(data, numbers) for (method in c("average", "complete", "single", "ward.D2")) {
  tree <- hclust(dist(scale(numbers)), method)
  for (i in seq_along(tree$height)) add(data, paste0("hclust_", method), i, height = tree$height[i])
  groups <- cutree(tree, 4)
  for (i in seq_along(groups)) add(data, paste0("cutree4_", method), names(groups)[i], group = groups[i])
}
components("us_arrests", USArrests); components("iris", iris[1:4]); clusters("us_arrests", USArrests)

write.csv(do.call(rbind, found), file.path(here, "reference.csv"), row.names = FALSE, quote = FALSE)
versions <- sapply(c("car", "rstatix", "effectsize", "emmeans", "multcompView"), function(p) as.character(packageVersion(p)))
writeLines(c(R.version.string, paste(names(versions), versions)), file.path(here, "versions.txt"))
